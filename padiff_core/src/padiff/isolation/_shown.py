"""Turn hyper-parameters into plain data that reads as they do."""

from __future__ import annotations

from typing import Any

__all__ = ["PLAIN", "Shown", "plain"]

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


def plain(value: Any) -> Any:
    """Return a value as Python's own plain data, with a `Shown` for whatever is none."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, tuple | list | set | frozenset):
        kind = next(kind for kind in (tuple, list, set, frozenset) if isinstance(value, kind))
        return kind(plain(item) for item in value)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    base = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), None)
    return Shown(repr(value)) if base is None or repr(base(value)) != repr(value) else base(value)
