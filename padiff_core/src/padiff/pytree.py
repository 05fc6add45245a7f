"""Walk nested values: what models take and return.

Understood are tuples, named tuples, lists, mappings (an HF ``ModelOutput`` among them), dataclasses, None, and objects
that only hold data: a cache of keys and values, a distribution. Everything else is a leaf; the caller says which leaves
it wants. Paths read as Python does: ``[0].hidden['mask']``.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import enum
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

Wanted = Callable[[Any], bool]
Change = Callable[[str, Any], Any]
Items = Iterator[tuple[str, Any]]
Content = list[tuple[Any, Any]]
"""What names each item of a container, and the item."""
Memo = dict[int, tuple[Any, Any]]
"""By identity, the containers that were met, and what they become."""

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Classes that are surely leaves, without a look at what they inherit."""
_RECORDS = (types.SimpleNamespace, argparse.Namespace)
"""Python's own classes of objects that only hold data."""


def _items(value: Any) -> Items | None:
    """Return the (step, item) pairs of a container, or None for a leaf."""
    if type(value) in _PLAIN:
        return None
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ((f".{name}", getattr(value, name)) for name in value._fields)
    if isinstance(value, tuple | list | deque):
        return ((f"[{index}]", item) for index, item in enumerate(value))
    if isinstance(value, Mapping):
        return ((f"[{key!r}]", item) for key, item in value.items())
    if _is_record(value):
        return ((f".{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value))
    if _holds_data(value):
        return ((f".{name}", getattr(value, name)) for name in _names(value))
    return None


def _holds_data(value: Any) -> bool:
    """Return whether a value is an object of some class that only holds data: no module, function, iterator, word."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        return isinstance(value, _RECORDS)
    if callable(value) or isinstance(value, type | enum.Enum | BaseException) or hasattr(kind, "__next__"):
        return False
    return isinstance(getattr(value, "__dict__", None), dict) or any(True for _ in _slots(kind))


def _slots(kind: type) -> Iterator[str]:
    for cls in kind.__mro__:
        slots = vars(cls).get("__slots__", ())
        yield from (name for name in ((slots,) if isinstance(slots, str) else slots) if name[:2] != "__")


def _names(value: Any) -> Iterator[str]:
    """Yield the names of the attributes that an object itself holds."""
    yield from list(getattr(value, "__dict__", ()))
    yield from (name for name in _slots(type(value)) if hasattr(value, name))


def is_container(value: Any) -> bool:
    """Return whether a value is a tuple, a list, a mapping or a record: one that holds what was put there, only."""
    return isinstance(value, tuple | list | deque | Mapping) or _is_record(value)


def is_mutable(value: Any) -> bool:
    """Return whether a value is a container that whoever holds it may change in place."""
    if isinstance(value, tuple) or type(value) in _PLAIN:
        return False
    if isinstance(value, list | deque | MutableMapping):
        return True
    if isinstance(value, Mapping):
        return False
    if _is_record(value):
        return not getattr(type(value), "__dataclass_params__").frozen  # noqa: B009 - mypy does not know it
    return _holds_data(value)


def can_change(value: Any) -> bool:
    """Return whether a value is, or holds in tuples, a container that can be changed in place."""
    return is_mutable(value) or (isinstance(value, tuple) and any(map(can_change, value)))


def held_in(values: Mapping[str, Any], wanted: Wanted) -> Items:
    """Yield ``(path, leaf)`` of what can be changed in place among named values: what a call may leave in a cache."""
    for name, value in values.items():
        if not wanted(value) and can_change(value):
            yield from leaves(value, wanted, name)


def leaves(value: Any, wanted: Wanted, path: str = "") -> Items:
    """Yield ``(path, leaf)`` for every wanted leaf, in the container's own order.

    A container that can be changed in place is looked into once, wherever else it hangs.
    """
    return _leaves(value, wanted, path, {})


def _leaves(value: Any, wanted: Wanted, path: str, seen: dict[int, Any]) -> Items:
    if wanted(value):
        yield path, value
        return
    items = _items(value)
    if items is None or id(value) in seen:
        return
    if is_mutable(value):
        seen[id(value)] = value
    for step, item in items:
        yield from _leaves(item, wanted, path + step, seen)


def map_leaves(value: Any, wanted: Wanted, change: Change, path: str = "") -> Any:
    """Return the value with each wanted leaf replaced by ``change(path, leaf)``.

    A container none of whose leaves changed comes back as the same object.
    """
    return _Mapping(wanted, change).of(value, path)


def copied(value: Any, wanted: Wanted, change: Change, path: str = "", memo: Memo | None = None) -> Any:
    """Return the same with every container that can be changed in place copied, whether a leaf in it changed or not.

    A ``memo`` that several calls share lets them know the containers that they have in common.
    """
    if wanted(value):  # as most are
        return change(path, value)
    return _Copying(wanted, change, memo).of(value, path)


def exchanged(value: Any, wanted: Wanted, change: Change, path: str = "", memo: Memo | None = None) -> Any:
    """Return the same, but written into the containers that can be changed in place: all who hold them see it."""
    return _Exchanging(wanted, change, memo).of(value, path)


class _Mapping:
    """One walk over a value that replaces leaves."""

    def __init__(self, wanted: Wanted, change: Change, memo: Memo | None = None) -> None:
        self._wanted, self._change = wanted, change
        self._memo: Memo = {} if memo is None else memo

    def of(self, value: Any, path: str) -> Any:
        """Return what becomes of a value."""
        if self._wanted(value):
            return self._change(path, value)
        if id(value) in self._memo:
            return self._memo[id(value)][1]
        pairs = _items(value)
        if pairs is None:
            return value
        mutable = is_mutable(value)
        twin = self.begun(value) if mutable else value
        if mutable:
            self._memo[id(value)] = value, twin
        old = list(pairs)
        new = [self.of(item, path + step) for step, item in old]
        if all(a is b for (_, a), b in zip(old, new, strict=True)):
            return twin
        if not mutable:
            return _rebuilt(value, new)
        twin = self.to_write(value, twin)
        self._memo[id(value)] = value, twin
        _write(twin, new)
        return twin

    def begun(self, value: Any) -> Any:
        """Return what stands for a container while its items are walked: a cycle leads back to it."""
        return value

    def to_write(self, value: Any, begun: Any) -> Any:
        """Return what other items are written into."""
        return _twin(value)


class _Copying(_Mapping):
    def begun(self, value: Any) -> Any:
        """Return a copy."""
        return _twin(value)

    def to_write(self, value: Any, begun: Any) -> Any:
        """Return the copy."""
        return begun


class _Exchanging(_Mapping):
    def to_write(self, value: Any, begun: Any) -> Any:
        """Return the container itself."""
        return value


def contents(value: Any, wanted: Wanted, seen: Memo) -> Iterator[tuple[Any, Content | None]]:
    """Yield every container that can be changed in place, within a value, with what is in it, and every wanted leaf.

    Each once: ``seen`` are those that are known already; it must not outlive the values.
    """
    if type(value) in _PLAIN or id(value) in seen:
        return
    if wanted(value):
        seen[id(value)] = value, value
        yield value, None
        return
    items = _items(value)
    if items is None:
        return
    seen[id(value)] = value, value
    held = [item for _, item in items]
    if is_mutable(value):
        yield value, list(zip(_keys(value), held, strict=True))
    for item in held:
        yield from contents(item, wanted, seen)


def _keys(value: Any) -> list[Any]:
    """Return what names the items of a container that can be changed in place."""
    if isinstance(value, list | deque):
        return list(range(len(value)))
    if isinstance(value, Mapping):
        return list(value)
    return [field.name for field in dataclasses.fields(value)] if _is_record(value) else list(_names(value))


def is_as_before(value: Any, content: Content) -> bool:
    """Return whether a container holds the very objects that it held."""
    now = _items(value) or iter(())
    held = [item for _, item in now]
    return len(held) == len(content) and all(
        a is b[1] and key == b[0] for a, key, b in zip(held, _keys(value), content, strict=True)
    )


def put_back(value: Any, content: Content) -> None:
    """Let a container hold what it held."""
    if is_as_before(value, content):
        return
    if isinstance(value, list):
        value[:] = [item for _, item in content]
    elif isinstance(value, deque):
        value.clear()
        value.extend(item for _, item in content)
    elif isinstance(value, MutableMapping):
        value.clear()
        for key, item in content:
            value[key] = item
    else:
        for name in set(getattr(value, "__dict__", ())) - {key for key, _ in content}:
            if not _is_record(value):
                object.__delattr__(value, name)
        for name, item in content:
            object.__setattr__(value, name, item)


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _twin(value: Any) -> Any:
    """Return a copy of a container that can be changed in place, with the same items."""
    if isinstance(value, list | deque | MutableMapping | types.SimpleNamespace) or dataclasses.is_dataclass(value):
        return copy.copy(value)
    try:
        twin = object.__new__(type(value))
    except TypeError:  # made by C code alone
        return value
    for name in _names(value):
        object.__setattr__(twin, name, getattr(value, name))
    return twin


def _write(value: Any, items: list[Any]) -> None:
    """Put other items into a container."""
    if isinstance(value, list):
        value[:] = items
    elif isinstance(value, deque):
        value.clear()
        value.extend(items)
    elif isinstance(value, MutableMapping):
        for key, item in zip(list(value), items, strict=True):
            value[key] = item
    else:
        found = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else None
        for name, item in zip(_names(value) if found is None else found, items, strict=True):
            object.__setattr__(value, name, item)


def _rebuilt(value: Any, items: list[Any]) -> Any:
    """Return a container, of those that cannot be changed in place, with other items."""
    if isinstance(value, tuple):
        # Past what a class does when it is made: torch's PackedSequence looks at its tensors.
        return tuple.__new__(type(value), items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        return type(value)(zip(value, items, strict=True))  # type: ignore[call-arg]
    twin = copy.copy(value)
    for field, item in zip(dataclasses.fields(value), items, strict=True):
        object.__setattr__(twin, field.name, item)
    return twin
