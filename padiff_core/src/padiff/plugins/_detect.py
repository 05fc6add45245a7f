"""Detect which adapter knows a model or a tensor.

The MRO decides: the first class whose package, or the nearest package around it, an adapter claims. Not
`sys.modules`, where a proxy of another framework may stand, and not the class's own module: a user's class is the
user's, and one of the framework's may name any module as its home.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from padiff.adapter import Adapter, AdapterInfo
from padiff.errors import AdapterError, UnknownModel
from padiff.plugins._framework import FRAMEWORKS, principal
from padiff.plugins._load import load
from padiff.plugins._registry import Row, conflict, registry


def adapter_for(model: Any) -> Adapter:
    """Return the adapter that knows a model, or a list of chunks of one.

    Raises `UnknownModel` where none does, `AdapterError` where two do, or where the one is broken.
    """
    whole = model[0] if isinstance(model, list) and model else model
    info = None if isinstance(whole, type) else _claimant(whole)
    if info is None:
        raise UnknownModel(_unknown(model))
    return load(info)


def adapter_of_tensor(value: Any) -> Adapter | None:
    """Return the adapter whose tensor a value is, or None; imports no framework."""
    info = None if isinstance(value, type) else _claimant(value)
    if info is None or principal(info) not in sys.modules:
        return None
    adapter = load(info)
    return adapter if adapter.is_tensor(value) else None


def _roots_of(value: Any) -> Iterator[str]:
    """Yield the top-level package of each class along the MRO."""
    for home in _homes_of(value):
        yield home.partition(".")[0]


def _homes_of(value: Any) -> Iterator[str]:
    """Yield the module of each class along the MRO."""
    homes = (getattr(cls, "__module__", None) for cls in type(value).__mro__)
    yield from (home for home in homes if isinstance(home, str))


def _packages_of(value: Any) -> Iterator[str]:
    """Yield, for each class along the MRO, its module and every package around it, the top-level one last."""
    for home in _homes_of(value):
        parts = home.split(".")
        yield from (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def _claimant(value: Any) -> AdapterInfo | None:
    found = registry()
    for root in _packages_of(value):
        rows = found.usable(root)
        if len(rows) > 1:
            raise AdapterError(conflict(root, rows))
        if rows:
            return rows[0].info
        broken = next((row for row in found.adapters if root in row.roots), None)
        if broken is not None:
            msg = (
                f"the adapter {broken.label} claims {root!r} and cannot be used: {broken.broken}.\n"
                f"Hint: pip install --upgrade padiff-core {broken.distribution}."
            )
            raise AdapterError(msg)
    return None


def _unknown(model: Any) -> str:
    rows = registry().adapters
    known = [f"{principal(row.info)} ({row.distribution})" for row in rows if row.info and not row.broken]
    broken = [row for row in rows if row.broken]
    lines = [_seen(model), f"Adapters installed: {', '.join(known) or 'none'}."]
    lines += [f"Left out: the {row.sort} {row.label}: {row.broken}." for row in broken]
    return "\n".join([*lines, f"Hint: {_hint(model, broken)}"])


def _seen(model: Any) -> str:
    if model is None:
        return "got None where a model was expected."
    if isinstance(model, type):
        name = f"{model.__module__}.{model.__qualname__}"
        return f"got the class {name} where a model, an instance, was expected."
    if isinstance(model, str):
        return f"got the text {model!r} where a model was expected."
    if isinstance(model, types.FunctionType | types.MethodType | functools.partial):
        name = getattr(model, "__qualname__", None) or repr(model)
        return f"got the {type(model).__name__} {name} where a model was expected."
    cls = type(model)
    packages = ", ".join(dict.fromkeys(root for root in _roots_of(model) if root != "builtins"))
    return (
        f"no adapter knows a model of class {cls.__module__}.{cls.__qualname__}; "
        f"it and its base classes come from: {packages or 'builtins'}."
    )


def _hint(model: Any, broken: list[Row]) -> str:
    if isinstance(model, types.MethodType) and not isinstance(model.__self__, type):
        return f"pass the model itself: the {type(model.__self__).__qualname__} that this is a method of."
    if isinstance(model, str):
        return _of_text(model)
    for kind, hint in _HINTS:
        if isinstance(model, kind):
            return _ORDER if _holds_arrays(model) else hint
    name = next((root for root in _roots_of(model) if root in FRAMEWORKS), None)
    if name is None:
        return "a model is an instance of a framework's module class (torch.nn.Module, paddle.nn.Layer, ...)."
    adapter = FRAMEWORKS[name].adapter
    if adapter is None:
        return f"padiff has no adapter of its own for {name}; is there a third party's to install?"
    if any(row.distribution == adapter for row in broken):
        return f"pip install --upgrade --force-reinstall {adapter}."
    return f"pip install {adapter}."


def _holds_arrays(value: Any) -> bool:
    """Return whether a container holds arrays or tensors, as inputs and state dicts do."""
    if not isinstance(value, list | tuple | dict):
        return False
    items = value.values() if isinstance(value, dict) else value
    return any(isinstance(item, np.ndarray) or adapter_of_tensor(item) is not None for item in items)


_ORDER = (
    "inputs come third, diff(reference, candidate, inputs); weights belong into a model first, by its own "
    "load_state_dict() or the like."
)


def _of_text(text: str) -> str:
    module, _, name = text.rpartition(":")
    if not module or not name:
        return "build the model and pass it; a file of weights is no model: load it into one."
    call = f", and call {name}()" if name.isidentifier() else ""
    return (
        f"padiff.remote({text!r}) names a model for a process of its own, and `padiff diff` on the command line takes "
        f"such names; for one in this process import it{call}."
    )


_HINTS: tuple[tuple[Any, str], ...] = (
    (type(None), "does the function that builds the model return it?"),
    (type, "call it to build an instance: Model(...)."),
    (
        types.FunctionType | types.MethodType | functools.partial,
        "call it, if it builds the model; a model is an instance of its framework's module class.",
    ),
    (list | tuple | dict, "pass one model, not a container of them."),
)
