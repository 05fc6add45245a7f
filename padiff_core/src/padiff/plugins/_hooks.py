"""Load one plugin and call each of its hooks by itself, under guard: an error in one loses no other."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pkgutil
from collections.abc import Iterator
from typing import Any

import attrs
import pluggy

from padiff.adapter import API_VERSION, AdapterInfo, Metric, Reader, Renderer, SpecialTransfer
from padiff.import_string import raised
from padiff.plugins import _hookspecs as hookspecs


@attrs.frozen
class HookType:
    """What a hook returns a list of: the class, and its name in sentences."""

    item: type
    noun: str


HOOKS = {
    "padiff_adapters": HookType(AdapterInfo, "adapter"),
    "padiff_metrics": HookType(Metric, "metric"),
    "padiff_transfers": HookType(SpecialTransfer, "special transfer"),
    "padiff_renderers": HookType(Renderer, "renderer"),
    "padiff_readers": HookType(Reader, "reader"),
}
"""Hook -> what it gives."""


@attrs.frozen
class Answer:
    """One item that a hook returned, or why there is none; ``hook`` is None where the plugin did not load."""

    hook: str | None
    item: Any = None
    broken: str | None = None


def answers(point: importlib.metadata.EntryPoint) -> Iterator[Answer]:
    """Yield what a plugin's hooks return, item by item."""
    try:
        plugin = point.load()
        hooks = _implemented(plugin)
    except (Exception, SystemExit) as error:
        yield Answer(None, broken=f"its plugin {point.value!r} {failure(error)}")
        return
    if not hooks:
        known = ", ".join(f"{name}()" for name in HOOKS)
        yield Answer(
            None, broken=f"its plugin {point.value!r} implements no hook; expected @padiff.hookimpl on one of {known}"
        )
    for hook in hooks:
        if hook in HOOKS:
            yield from _called(plugin, hook)
        else:
            known = ", ".join(HOOKS)
            yield Answer(None, broken=f"its plugin {point.value!r} implements {hook}(), and this padiff has {known}")


def _called(plugin: Any, hook: str) -> Iterator[Answer]:
    """Yield what one hook returns; what it yielded before an error is lost."""
    expected = HOOKS[hook].item
    try:
        manager = _OneHook(hook)
        manager.register(plugin)
        found = [_listed(hook, given) for given in getattr(manager.hook, hook)()]
    except (Exception, SystemExit) as error:
        yield Answer(hook, broken=f"{hook}() {failure(error)}")
        return
    for item in (item for items in found for item in items):
        if isinstance(item, expected):
            yield Answer(hook, item, why_unusable(item))
        else:
            reason = f"{hook}() gave a {type(item).__qualname__}; expected padiff.{expected.__name__}"
            yield Answer(hook, broken=reason)


def _listed(hook: str, given: Any) -> list[Any]:
    if isinstance(given, HOOKS[hook].item):
        msg = f"gave a {type(given).__qualname__}; expected a list of them"
        raise _PlainError(msg)
    return list(given)


class _OneHook(pluggy.PluginManager):
    """A plugin manager that registers one hook of a plugin."""

    def __init__(self, hook: str | None = None) -> None:
        super().__init__("padiff")
        self._hook = hook
        self.add_hookspecs(hookspecs)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """Return the options of that hook, None for everything else in the plugin."""
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
    """A reason that needs no "raised" before it."""


def why_unusable(item: Any) -> str | None:
    """Return why a contribution cannot be used, as far as it tells itself, or None."""
    if item.api != API_VERSION:
        older = "padiff-core" if isinstance(item.api, int) and item.api > API_VERSION else "the plugin"
        return f"it has interface version {item.api} and this padiff {API_VERSION}: {older} is older"
    return _malformed(item) if isinstance(item, AdapterInfo) else None


def _malformed(info: AdapterInfo) -> str | None:
    """Return what is wrong with an adapter's description, or None."""
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


def failure(error: BaseException) -> str:
    """Return what an exception said, and where, as the end of a sentence."""
    return str(error) if isinstance(error, _PlainError) else raised(error, _MACHINERY)
