"""Find the functions that a script lets run around calls of modules, or on gradients of parameters: its hooks."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from padiff.adapter import Adapter, Module, Parameter
from padiff.paths import parent
from padiff.recording._frames import Origin, is_installed, origin_of


def hooks_of(
    modules: Mapping[str, Module], parameters: Mapping[str, Parameter], adapter: Adapter
) -> dict[str, tuple[str, ...]]:
    """Return the user's own hooks: path of a module -> the names of functions, and the lines where these stand.

    Frameworks keep them in tables that are called so. Those of a framework's or of an installed package are its own.
    """
    held = [(path, module.native) for path, module in modules.items()]
    held += [(parent(path), one.native) for path, one in parameters.items() if not one.buffer]
    tables = {cls: _tables(cls) for cls in {type(native) for _, native in held}}
    found: dict[str, tuple[str, ...]] = {}
    for home, native in held:
        hooks = _hooks(native, tables[type(native)])
        names = tuple(dict.fromkeys(said for hook in hooks if (said := _said(hook, adapter)) is not None))
        if names:
            found[home] = (*found.get(home, ()), *names)
    return found


def _hooks(native: Any, tables: Sequence[str]) -> Iterator[Any]:
    own = getattr(native, "__dict__", {})
    names = [one for one in (*own, *tables) if "hook" in one and "state_dict" not in one]
    for name in names:
        table = None
        with suppress(Exception):  # a property of the user's own may raise
            table = own[name] if name in own else getattr(native, name)
        yield from filter(callable, list(table.values()) if isinstance(table, Mapping) else ())


def _tables(cls: type) -> tuple[str, ...]:
    """Return the attributes of a class that hold tables of hooks, and no methods."""
    return tuple(name for name in dir(cls) if "hook" in name and not callable(getattr(cls, name, None)))


def _said(hook: Any, adapter: Adapter) -> str | None:
    """Return a user's function in words; None for any other one."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    called = vars(type(hook)).get("__call__")
    code = getattr(hook, "__code__", None) or getattr(called, "__code__", None)
    if code is None or origin_of(code.co_filename, adapter) is not Origin.USER or is_installed(code.co_filename):
        return None
    name = getattr(hook, "__qualname__", type(hook).__qualname__)
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
