"""Load one plugin and ask each of its hooks alone, under guard: what is wrong in one costs no other."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pkgutil
import traceback
from collections.abc import Iterator
from typing import Any

import attrs
import pluggy

from padiff.adapter import API_VERSION, AdapterInfo, Metric, Renderer, SpecialTransfer
from padiff.plugins import _hookspecs as hookspecs

__all__ = ["HOOKS", "Answer", "Sort", "answers", "told", "unfit"]


@attrs.frozen
class Sort:
    """Say what a hook gives: the type, and its name in sentences."""

    type: type
    noun: str


HOOKS = {
    "padiff_adapters": Sort(AdapterInfo, "adapter"),
    "padiff_metrics": Sort(Metric, "metric"),
    "padiff_transfers": Sort(SpecialTransfer, "special transfer"),
    "padiff_renderers": Sort(Renderer, "renderer"),
}
"""Hook -> what it gives."""


@attrs.frozen
class Answer:
    """Hold one thing that a hook gave, or why it gave none; ``hook`` is None where the plugin did not load."""

    hook: str | None
    item: Any = None
    broken: str | None = None


def answers(point: importlib.metadata.EntryPoint) -> Iterator[Answer]:
    """Yield what a plugin gives, hook by hook."""
    try:
        plugin = point.load()
        hooks = _implemented(plugin)
    except (Exception, SystemExit) as error:
        yield Answer(None, broken=f"its plugin {point.value!r} {told(error)}")
        return
    if not hooks:
        known = ", ".join(f"{name}()" for name in HOOKS)
        yield Answer(
            None, broken=f"its plugin {point.value!r} implements no hook; expected @padiff.hookimpl on one of {known}"
        )
    for hook in hooks:
        if hook in HOOKS:
            yield from _asked(plugin, hook)
        else:
            known = ", ".join(HOOKS)
            yield Answer(None, broken=f"its plugin {point.value!r} implements {hook}(), and this padiff has {known}")


def _asked(plugin: Any, hook: str) -> Iterator[Answer]:
    """Yield what one hook gives; what came before an error is lost with it."""
    expected = HOOKS[hook].type
    try:
        manager = _OneHook(hook)
        manager.register(plugin)
        found = [_listed(hook, given) for given in getattr(manager.hook, hook)()]
    except (Exception, SystemExit) as error:
        yield Answer(hook, broken=f"{hook}() {told(error)}")
        return
    for item in (item for items in found for item in items):
        if isinstance(item, expected):
            yield Answer(hook, item, unfit(item))
        else:
            said = f"{hook}() gave a {type(item).__qualname__}; expected padiff.{expected.__name__}"
            yield Answer(hook, broken=said)


def _listed(hook: str, given: Any) -> list[Any]:
    if isinstance(given, HOOKS[hook].type):
        msg = f"gave a {type(given).__qualname__}; expected a list of them"
        raise _PlainError(msg)
    return list(given)


class _OneHook(pluggy.PluginManager):
    """Register of a plugin one hook alone."""

    def __init__(self, hook: str | None = None) -> None:
        super().__init__("padiff")
        self._hook = hook
        self.add_hookspecs(hookspecs)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """Return the options of the one hook, None for what else the plugin holds."""
        found = super().parse_hookimpl_opts(plugin, name)
        return None if found is None or (found.get("specname") or name) != self._hook else found


def _implemented(plugin: Any) -> list[str]:
    """Return the hooks that a plugin implements, in padiff's order; those that padiff does not know come last."""
    manager = pluggy.PluginManager("padiff")
    found = {name: manager.parse_hookimpl_opts(plugin, name) for name in dir(plugin)}
    names = {options.get("specname") or name: options.get("optionalhook") for name, options in found.items() if options}
    unknown = [name for name, optional in names.items() if name not in HOOKS and not optional]
    return [name for name in HOOKS if name in names] + unknown


class _PlainError(Exception):
    """Carry a reason that needs no "raised" before it."""


def unfit(item: Any) -> str | None:
    """Return why a contribution cannot be used, as far as it tells itself, or None."""
    if item.api != API_VERSION:
        older = "padiff-core" if isinstance(item.api, int) and item.api > API_VERSION else "the plugin"
        return f"it has interface version {item.api} and this padiff {API_VERSION}: {older} is older"
    return _unusable(item) if isinstance(item, AdapterInfo) else None


def _unusable(info: AdapterInfo) -> str | None:
    module, _, name = info.factory.partition(":")
    if not module or not name:
        return f"its factory is {info.factory!r}; expected 'package.module:callable'"
    if not info.roots:
        return "it claims no package; expected at least one in AdapterInfo.roots"
    return None


_MACHINERY = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    importlib.__file__,
    importlib.metadata.__file__,
    pkgutil.__file__,
    *pluggy.__path__,
    "<frozen ",
    "<attrs ",
)


def told(error: BaseException) -> str:
    """Return what an exception said, and where, as the end of a sentence."""
    if isinstance(error, _PlainError):
        return str(error)
    text = ": ".join(filter(None, [type(error).__qualname__, " ".join(str(error).split())]))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_MACHINERY)]
    return f"raised {text}" + (f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else "")
