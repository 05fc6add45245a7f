"""Know what each type of records looks like: its fields, and what each takes."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import attrs

from padiff.codec._hints import Checker, checker_of


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
        name: Shape(
            cls, tuple((field, checker_of(hint, types)) for field, hint in _fields(cls, types)), _has_identity(cls)
        )
        for name, cls in types.items()
        if not issubclass(cls, enum.Enum)
    }


def _has_identity(cls: Any) -> bool:
    return bool(cls.__hash__ is object.__hash__)


def _fields(cls: type, types: Mapping[str, type]) -> Iterable[tuple[str, Any]]:
    """Return the fields of a type of records with their annotations."""
    attrs.resolve_types(cls, localns=dict(types))
    return [(field.name, field.type) for field in attrs.fields(cls)]
