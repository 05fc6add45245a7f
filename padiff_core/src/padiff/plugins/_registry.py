"""Discover the plugins, each under guard, and keep what they announced."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import traceback
import warnings
from typing import Any

import attrs
import pluggy

from padiff import hookspecs
from padiff.adapter import API_VERSION, Adapter, AdapterInfo
from padiff.errors import PluginWarning

__all__ = ["GROUP", "Registry", "Row", "adapters", "conflict", "loaded", "registry", "reset", "told", "unfit"]

GROUP = "padiff"
"""The entry-point group under which a plugin registers."""


@attrs.define(eq=False)
class Row:
    """Hold one adapter, or one plugin that gave none."""

    name: str
    distribution: str
    version: str | None
    info: AdapterInfo | None = None
    broken: str | None = None
    """Why it cannot be used at all."""
    failed: str | None = None
    """Why the last attempt to load it failed; the next may succeed."""
    missing: bool = False
    """Whether that was for want of the framework."""
    adapter: Adapter | None = None

    @property
    def label(self) -> str:
        """Return the adapter's name and where it comes from."""
        return f"{self.name!r} ({self.distribution}{f' {self.version}' if self.version else ''})"

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the top-level packages that it claims."""
        return tuple(sorted(self.info.roots)) if self.info else ()


@attrs.define
class Registry:
    """Hold what all plugins announced."""

    rows: list[Row] = attrs.field(factory=list)
    unannounced: dict[AdapterInfo, Row] = attrs.field(factory=dict)
    """Adapters that were loaded from an info that no plugin announced."""
    pending: list[str] = attrs.field(factory=list)
    """Warnings that are not issued yet."""

    def usable(self, root: str) -> list[Row]:
        """Return the adapters that claim a top-level package and can be used."""
        return [row for row in self.rows if row.broken is None and root in row.roots]

    def rivals(self, row: Row) -> dict[str, list[Row]]:
        """Return, for each root that others claim too, those others."""
        roots = row.roots if row.broken is None else ()
        others = {root: [other for other in self.usable(root) if other is not row] for root in roots}
        return {root: rows for root, rows in others.items() if rows}


def registry() -> Registry:
    """Return what was discovered, and issue its warnings, each once even where it is turned into an error."""
    found = _discovered()
    while found.pending:
        warnings.warn(found.pending.pop(0), PluginWarning, stacklevel=3)
    return found


def reset() -> None:
    """Forget every plugin and adapter, so that the next use discovers them anew."""
    _discovered.cache_clear()


def adapters() -> tuple[AdapterInfo, ...]:
    """Return what is known of every usable adapter, in the order in which they should be loaded.

    An adapter whose framework must come before another's stands before that one.
    """
    infos = [row.info for row in registry().rows if row.info and row.broken is None]
    return tuple(sorted(infos, key=lambda info: not info.load_before))


def loaded() -> tuple[Adapter, ...]:
    """Return the adapters that were loaded so far, and their frameworks with them."""
    found = registry()
    rows = (*found.rows, *found.unannounced.values())
    return tuple(row.adapter for row in rows if row.adapter is not None)


@functools.cache
def _discovered() -> Registry:
    found = Registry()
    manager = pluggy.PluginManager("padiff")
    manager.add_hookspecs(hookspecs)
    for point in importlib.metadata.entry_points(group=GROUP):
        dist = point.dist
        row = Row(point.name, dist.name if dist else point.value, dist.version if dist else None)
        found.rows.extend(_asked(manager, point, row))
    found.pending = [_left_out(row) for row in found.rows if row.broken]
    contested = dict.fromkeys(root for row in found.rows for root in found.rivals(row))
    found.pending += [conflict(root, found.usable(root)) for root in contested]
    return found


def _asked(manager: pluggy.PluginManager, point: importlib.metadata.EntryPoint, row: Row) -> list[Row]:
    """Return one row for each adapter of a plugin, or the given one, marked as broken."""
    try:
        answers = _answers(manager, point, f"{row.distribution}:{point.name}")
    except (Exception, SystemExit) as error:
        row.broken = f"its plugin {point.value!r} {told(error)}"
        return [row]
    rows = []
    for info in answers:
        if isinstance(info, AdapterInfo):
            rows.append(attrs.evolve(row, name=info.name, info=info, broken=unfit(info)))
        else:
            said = f"padiff_adapters() gave a {type(info).__qualname__}; expected padiff.AdapterInfo"
            rows.append(attrs.evolve(row, broken=said))
    return rows


def _answers(manager: pluggy.PluginManager, point: importlib.metadata.EntryPoint, name: str) -> list[Any]:
    """Load and register one plugin and ask it alone; it is out again when anything about it raises."""
    plugin = point.load()
    others = manager.get_plugins()
    manager.register(plugin, name=name)
    try:
        manager.check_pending()
        if not manager.get_hookcallers(plugin):
            msg = "implements no hook; expected @padiff.hookimpl on padiff_adapters()"
            raise _NoHookError(msg)
        return [info for infos in manager.subset_hook_caller("padiff_adapters", others)() for info in infos]
    except BaseException:
        manager.unregister(plugin)
        raise


class _NoHookError(Exception):
    """Carry a reason that needs no "raised" before it."""


def unfit(info: AdapterInfo) -> str | None:
    """Return why an adapter cannot be used, as far as its info tells, or None."""
    if info.api != API_VERSION:
        older = "the adapter" if info.api < API_VERSION else "padiff-core"
        return f"it has interface version {info.api} and this padiff {API_VERSION}: {older} is older"
    module, _, name = info.factory.partition(":")
    if not module or not name:
        return f"its factory is {info.factory!r}; expected 'package.module:callable'"
    if not info.roots:
        return "it claims no package; expected at least one in AdapterInfo.roots"
    return None


_MACHINERY = (
    os.path.dirname(__file__),
    importlib.__file__,
    importlib.metadata.__file__,
    *pluggy.__path__,
    "<frozen ",
)


def told(error: BaseException) -> str:
    """Return what an exception said, and where, as the end of a sentence."""
    text = ": ".join(filter(None, [type(error).__qualname__, " ".join(str(error).split())]))
    if isinstance(error, _NoHookError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_MACHINERY)]
    return f"raised {text}" + (f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else "")


def conflict(root: str, rows: list[Row]) -> str:
    """Return the message for several adapters on one top-level package."""
    names = " and ".join(row.label for row in rows)
    return (
        f"{len(rows)} adapters claim the package {root!r}: {names}; expected one.\n"
        f"Hint: pip uninstall all but one of {', '.join(row.distribution for row in rows)}."
    )


def _left_out(row: Row) -> str:
    return (
        f"the adapter {row.label} is left out: {row.broken}.\n"
        f"Hint: pip install --upgrade {row.distribution}, or uninstall it; `padiff adapters` lists them all."
    )
