"""Turn hyper-parameters into plain data that reads as they do."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["PLAIN", "Shown", "is_plain", "plain", "shown"]

PLAIN = (type(None), bool, int, float, complex, str, bytes)
"""What travels by value."""


class Shown:
    """Stand for a value that cannot travel: it reads as the value does, and equals what reads alike."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        """Return what the value's own repr is."""
        return self._text

    def __eq__(self, other: object) -> bool:
        """Return whether the other one reads alike."""
        return repr(other) == self._text

    def __hash__(self) -> int:
        """Return the hash of the text."""
        return hash(self._text)


def is_plain(value: Any) -> bool:
    """Return whether a value is plain data, or a range, a tuple or a list of nothing else."""
    if type(value) is slice:
        return all(map(is_plain, (value.start, value.stop, value.step)))
    return type(value) in PLAIN or (type(value) in (tuple, list) and all(map(is_plain, value)))


def plain(value: Any) -> Any:
    """Return a value as Python's own plain data, with a `Shown` for whatever is none."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.generic):
        return plain(value.item())
    for kind in (tuple, list, set, frozenset):
        if isinstance(value, kind):
            return kind(plain(item) for item in value)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    base = next((kind for kind in (int, float, complex, str, bytes) if isinstance(value, kind)), None)
    return Shown(repr(value)) if base is None else base(value)


def shown(value: Any) -> Any:
    """Return plain data that reads exactly as a value does."""
    found = plain(value)
    return found if repr(found) == repr(value) else Shown(repr(value))
