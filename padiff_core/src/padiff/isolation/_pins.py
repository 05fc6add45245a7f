"""Number the worker's objects that the other process holds stand-ins for, and keep these objects alive."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import attrs

__all__ = ["Pins"]


@attrs.define(eq=False)
class _Pin:
    value: Any
    count: int = 0


class Pins:
    """Keep what was sent until the other end has dropped it as often as it was sent.

    An object keeps its number while it lives, also when it is not pinned: so the other end can tell that it meets it
    again. ``gone`` collects the numbers of objects that live no more.
    """

    def __init__(self) -> None:
        self.gone: list[int] = []
        self._pins: dict[int, _Pin] = {}
        self._numbers: dict[int, tuple[Callable[[], Any], int]] = {}
        self._kept: list[int] = []
        self._next = itertools.count(1)

    def send(self, value: Any, *, keep: bool = False) -> int:
        """Pin an object once more; return its number.

        With ``keep`` an object that cannot be referenced weakly keeps its number, and lives, until `forget_kept`.
        """
        number = self.number(value, keep=keep)
        pin = self._pins.get(number)
        if pin is None:
            pin = self._pins[number] = _Pin(value)
        pin.count += 1
        return number

    def number(self, value: Any, *, keep: bool = False) -> int:
        """Return an object's number without pinning it."""
        key = id(value)
        known = self._numbers.get(key)
        if known is not None and known[0]() is value:
            return known[1]
        number = next(self._next)

        def forget(_: Any) -> None:
            self.gone.append(number)
            if self._numbers.get(key, (None, 0))[1] == number:
                del self._numbers[key]

        try:
            self._numbers[key] = (weakref.ref(value, forget), number)
        except TypeError:  # a list, a dict: another number each time
            if keep:
                self._numbers[key] = (lambda: value, number)
                self._kept.append(key)
        return number

    def forget_kept(self) -> None:
        """Forget the numbers of objects that were kept for them."""
        while self._kept:
            self.gone.append(self._numbers.pop(self._kept.pop())[1])

    def get(self, number: int) -> Any:
        """Return the object of a number."""
        return self._pins[number].value

    def drop(self, counts: Iterable[tuple[int, int]]) -> None:
        """Let go of objects: (number, how often it was received)."""
        for number, count in counts:
            pin = self._pins[number]
            pin.count -= count
            if pin.count <= 0:
                del self._pins[number]

    def __len__(self) -> int:
        """Return how many objects are pinned."""
        return len(self._pins)
