"""Hold what another process sends to the annotations of the fields that it goes to: those of each type of records."""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import attrs
import numpy as np

Checker = Callable[[Any], bool]
"""Tells whether a value is what a field takes."""

_SCALARS: Mapping[Any, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (float, int, np.floating, np.integer),
    complex: (complex, np.complexfloating),
    None: (type(None),),
    type(None): (type(None),),
}
_ONE = (collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable, collections.abc.Set)


class Misfit(Exception):
    """An annotation that nothing which comes from another process can fit."""


def checker_of(hint: Any) -> Checker:
    """Return what checks values against an annotation."""
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar) or getattr(hint, "_is_protocol", False):
        return lambda value: True
    if hint in _SCALARS:
        return _of(_SCALARS[hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is not None and hasattr(
        origin, "__value__"
    ):  # numpy 2.5's NDArray is a name for a type, as ``type`` makes
        return checker_of(origin.__value__)
    if origin in (typing.Union, types.UnionType):
        return _any([checker_of(one) for one in arguments])
    if origin is typing.Literal:
        return lambda value: any(value is one or value == one for one in arguments)
    if origin is np.ndarray:
        return _of((np.ndarray,))
    if origin is collections.abc.Callable or hint is collections.abc.Callable:
        return no_function
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        return _fixed([checker_of(one) for one in arguments])
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return _mapping(*(checker_of(one) for one in arguments))
    if isinstance(origin, type) and issubclass(origin, _ONE):
        kinds = (list, tuple, set, frozenset) if origin.__module__ == "collections.abc" else (origin,)
        return _collection(kinds, checker_of(arguments[0]))
    if isinstance(hint, type):
        return _of((hint,))
    raise Misfit(repr(hint))


def no_function(value: Any) -> bool:
    """Return whether there is nothing where a function could be: functions are no data."""
    return value is None


def _of(kinds: tuple[type, ...]) -> Checker:
    if bool in kinds:
        return lambda value: isinstance(value, kinds)
    return lambda value: isinstance(value, kinds) and value is not True and value is not False


def _any(checkers: list[Checker]) -> Checker:
    return lambda value: any(check(value) for check in checkers)


def _fixed(checkers: list[Checker]) -> Checker:
    def check(value: Any) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == len(checkers)
            and all(one(item) for one, item in zip(checkers, value, strict=True))
        )

    return check


def _mapping(key: Checker, item: Checker) -> Checker:
    return lambda value: isinstance(value, dict) and all(map(key, value)) and all(map(item, value.values()))


def _collection(kinds: tuple[type[Any], ...], item: Checker) -> Checker:
    return lambda value: isinstance(value, kinds) and all(item(one) for one in value)


@attrs.frozen
class Shape:
    """One type of records: its fields with what each takes."""

    cls: type
    fields: tuple[tuple[str, Checker], ...]
    lasting: bool
    """Whether its instances have an identity."""


@lru_cache(maxsize=16)
def shapes_of(records: tuple[type, ...]) -> Mapping[str, Shape]:
    """Return what each type of records looks like: found once, however many files hold them."""
    types = {cls.__name__: cls for cls in records}
    return {
        name: Shape(cls, tuple((field, checker_of(hint)) for field, hint in _fields(cls, types)), _has_identity(cls))
        for name, cls in types.items()
    }


def _has_identity(cls: Any) -> bool:
    return bool(cls.__hash__ is object.__hash__)


def _fields(cls: type, types: Mapping[str, type]) -> Iterable[tuple[str, Any]]:
    """Return the fields of a type of records with their annotations."""
    attrs.resolve_types(cls, localns=dict(types))
    return [(field.name, field.type) for field in attrs.fields(cls)]
