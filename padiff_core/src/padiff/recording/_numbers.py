"""Read what a model returns beside tensors: counts, indices, words, numbers that code of its own made of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from padiff.numerics import Array
from padiff.pytree import is_container, leaves

_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
TEXT = np.dtype("uint32")
"""What holds the characters of words: whole numbers are held by other types."""


def numbers_in(output: Any, is_tensor: Callable[[Any], bool]) -> dict[str, Array]:
    """Return numbers, truth values, words and arrays of these by their paths; a list of nothing else is one array.

    An empty list is one, too: the other side's may hold some.
    Only tuples, lists, mappings and records are looked into: other objects hold what their class keeps for itself, too.
    """

    def wanted(value: Any) -> bool:
        return is_tensor(value) or _array(value) is not None or not is_container(value)

    found = {path: value for path, value in leaves(output, wanted) if not is_tensor(value)}
    arrays = {path: _array(value) for path, value in found.items()}
    return {path: array for path, array in arrays.items() if array is not None}


def in_words(output: Any) -> str:
    """Return in words what a model returned, where it holds no tensor."""
    if output is None or isinstance(output, bool | int | float | str):
        return f"{output!r} of type {type(output).__name__}" if output is not None else "None"
    return f"a value of type {type_named(type(output))}"


def type_named(kind: type) -> str:
    """Return a class's name, with its module where it is none of Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _array(value: Any) -> Array | None:
    if isinstance(value, _NUMBERS):
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        kept = np.int64 if value.dtype == TEXT else value.dtype
        return np.array(value, kept) if value.dtype.kind in "biufc" else None
    several = isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value)
    if several or isinstance(value, str):
        words = repr(list(value) if several else value)
        return np.frombuffer(words.encode("utf-32-le", "replace"), TEXT)
    if isinstance(value, list | tuple) and all(isinstance(one, _NUMBERS) for one in value):
        found = np.asarray(value)
        return found if found.dtype.kind in "biufc" else None  # an integer may be too large for any type
    return None
