"""Discover the plugins once, and keep what their hooks returned."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import warnings
from collections.abc import Iterator
from typing import Any

import attrs

from padiff import predecessor
from padiff._version import __version__
from padiff.adapter import Adapter, AdapterInfo
from padiff.errors import PluginWarning
from padiff.plugins._hooks import HOOKS, Answer, answers

GROUP = "padiff"
"""The entry-point group under which a plugin registers."""

_BUILTIN = tuple(
    importlib.metadata.EntryPoint("padiff", module, GROUP)
    for module in ("padiff.report._builtin", "padiff.trace.readers._builtin")
)
"""What padiff itself contributes, through the hooks that every plugin has."""
_CORE = "padiff-core"


@attrs.define(eq=False)
class Row:
    """One contribution of a plugin, or the plugin, or one of its hooks, that did not yield any."""

    name: str
    distribution: str
    version: str | None
    hook: str | None = "padiff_adapters"
    """None where the whole plugin does not load."""
    item: Any = None
    broken: str | None = None
    """Why it cannot be used at all."""
    failed: str | None = None
    """Why the last attempt to use it failed; the next may succeed."""
    missing: bool = False
    """Whether that was for want of the framework."""
    adapter: Adapter | None = None
    given: bool = False
    """Whether it is the user's own, and no plugin's."""

    @property
    def label(self) -> str:
        """Return its name and where it comes from."""
        return f"{self.name!r} ({self.distribution}{f' {self.version}' if self.version else ''})"

    @property
    def sort(self) -> str:
        """Return what it is, as a noun."""
        return "plugin" if self.hook is None else HOOKS[self.hook].noun

    @property
    def info(self) -> AdapterInfo | None:
        """Return what is known of the adapter, where it is one."""
        return self.item if isinstance(self.item, AdapterInfo) else None

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the top-level packages that it claims."""
        return tuple(sorted(self.info.roots)) if self.info else ()

    @property
    def builtin(self) -> bool:
        """Return whether it is padiff's own."""
        return self.distribution == _CORE


@attrs.define
class Registry:
    """What the hooks of all plugins returned."""

    all: list[Row] = attrs.field(factory=list)
    unannounced: dict[AdapterInfo, Row] = attrs.field(factory=dict)
    """Adapters that were loaded from an `AdapterInfo` of no plugin."""
    pending: list[str] = attrs.field(factory=list)
    """Warnings that are not issued yet."""

    @property
    def adapters(self) -> list[Row]:
        """Return the adapters, and the plugins that do not load: they may have held one."""
        return [row for row in self.all if row.hook in (None, "padiff_adapters")]

    def of_hook(self, hook: str) -> list[Row]:
        """Return what a hook returned that is not broken."""
        return [row for row in self.all if row.hook == hook and row.item is not None and row.broken is None]

    def usable(self, root: str) -> list[Row]:
        """Return the adapters that claim a top-level package and can be used."""
        return [row for row in self.of_hook("padiff_adapters") if root in row.roots]

    def rivals(self, row: Row) -> dict[str, list[Row]]:
        """Return, for each root (or name) that others claim too, those others."""
        if row.broken is not None or row.item is None or row.hook is None:
            return {}
        if row.info is None:
            others = [other for other in self.of_hook(row.hook) if other.name == row.name and other is not row]
            return {row.name: others} if others else {}
        claims = {root: [other for other in self.usable(root) if other is not row] for root in row.roots}
        return {root: rows for root, rows in claims.items() if rows}


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
    infos = [row.info for row in registry().adapters if row.info and row.broken is None]
    return tuple(sorted(infos, key=lambda info: not info.load_before))


def set_environment() -> None:
    """Set the variables that adapters ask for, and no user has set: for a process of padiff's own, as it starts."""
    for info in adapters():
        for name, value in info.environment.items():
            os.environ.setdefault(name, value)


def loaded() -> tuple[Adapter, ...]:
    """Return the adapters that were loaded so far, and their frameworks with them."""
    found = registry()
    rows = (*found.adapters, *found.unannounced.values())
    return tuple(row.adapter for row in rows if row.adapter is not None)


@functools.cache
def _discovered() -> Registry:
    found = Registry()
    # In the order of names, which does not depend on how a folder is listed.
    points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda p: (p.dist.name if p.dist else "", p.name))
    for point in (*_BUILTIN, *points):
        dist = point.dist
        row = Row(point.name, dist.name if dist else point.value, dist.version if dist else None)
        if point in _BUILTIN:
            row = Row(point.name, _CORE, __version__)
        found.all.extend(_row(row, answer) for answer in answers(point))
    for row in found.all:
        row.broken = row.broken or _taken(found, row)
    clash = predecessor.message()
    found.pending = [clash] if clash else []
    found.pending += [_left_out(row) for row in found.all if row.broken]
    found.pending += _conflicts(found)
    return found


def _row(plugin: Row, answer: Answer) -> Row:
    name = plugin.name if answer.item is None else answer.item.name
    return attrs.evolve(plugin, name=name, hook=answer.hook, item=answer.item, broken=answer.broken)


def _taken(found: Registry, row: Row) -> str | None:
    """Return why a name is not free, where it is that of something of padiff's own."""
    taken = any(other.builtin for others in found.rivals(row).values() for other in others)
    return f"padiff has a {row.sort} of that name of its own" if taken and not row.builtin else None


def _conflicts(found: Registry) -> Iterator[str]:
    contested = {(row.hook, key): None for row in found.all for key in found.rivals(row)}
    for hook, key in contested:
        if hook == "padiff_adapters":
            yield conflict(key, found.usable(key))
        elif hook is not None:
            yield conflict(key, [row for row in found.of_hook(hook) if row.name == key])


def conflict(key: str, rows: list[Row]) -> str:
    """Return the message for several adapters on one top-level package, or several contributions of one name."""
    names = " and ".join(row.label for row in rows)
    if rows[0].info is not None:
        claims = f"{len(rows)} adapters claim the package {key!r}: {names}; expected one."
    else:
        claims = f"{len(rows)} {rows[0].sort}s have the name {key!r}: {names}; expected one."
    return f"{claims}\nHint: pip uninstall all but one of {', '.join(row.distribution for row in rows)}."


def _left_out(row: Row) -> str:
    whole = row.item is not None or row.hook is None
    what = f"the {row.sort} {row.label} is" if whole else f"the {row.sort}s of the plugin {row.label} are"
    return (
        f"{what} left out: {row.broken}.\n"
        f"Hint: pip install --upgrade padiff-core {row.distribution}, or uninstall it; `padiff plugins` lists them all."
    )
