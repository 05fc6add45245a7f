"""Walk nested values: what models take and return.

Understood are tuples, named tuples, lists, mappings (an HF ``ModelOutput`` among them), dataclasses and None.
Everything else is a leaf; the caller says which leaves it wants. Paths read as Python does:
``[0].hidden['mask']``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

__all__ = ["leaves", "map_leaves"]


def _items(value: Any) -> Iterator[tuple[str, Any]] | None:
    """Return the (step, item) pairs of a container, or None for a leaf."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ((f".{name}", getattr(value, name)) for name in value._fields)
    if isinstance(value, tuple | list):
        return ((f"[{index}]", item) for index, item in enumerate(value))
    if isinstance(value, Mapping):
        return ((f"[{key!r}]", item) for key, item in value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((f".{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value))
    return None


def leaves(value: Any, wanted: Callable[[Any], bool], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``(path, leaf)`` for every wanted leaf, in the container's own order."""
    if wanted(value):
        yield path, value
        return
    for step, item in _items(value) or ():
        yield from leaves(item, wanted, path + step)


def map_leaves(value: Any, wanted: Callable[[Any], bool], change: Callable[[str, Any], Any], path: str = "") -> Any:
    """Return the value with each wanted leaf replaced by ``change(path, leaf)``.

    A container none of whose leaves changed comes back as the same object.
    """
    if wanted(value):
        return change(path, value)
    pairs = _items(value)
    if pairs is None:
        return value
    old = list(pairs)
    new = [(step, map_leaves(item, wanted, change, path + step)) for step, item in old]
    if all(a is b for (_, a), (_, b) in zip(old, new, strict=True)):
        return value
    return _rebuild(value, [item for _, item in new])


def _rebuild(value: Any, items: list[Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    if isinstance(value, tuple | list):
        return type(value)(items)
    twin = copy.copy(value)
    if isinstance(value, MutableMapping):
        for key, item in zip(list(value), items, strict=True):
            twin[key] = item
        return twin
    if isinstance(value, Mapping):
        return type(value)(zip(value, items, strict=True))  # type: ignore[call-arg]
    for field, item in zip(dataclasses.fields(value), items, strict=True):
        object.__setattr__(twin, field.name, item)
    return twin
