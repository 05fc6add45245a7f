"""Name records that have an identity by numbers, so that both ends of a connection mean the same one."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from padiff.codec._errors import refuse


class Known:
    """Records with an identity that both ends hold: sent once, named by their numbers afterwards.

    The end that ``owns`` them holds them weakly and tells which of them are gone; the other end keeps them until then.
    """

    def __init__(self, *, owns: bool) -> None:
        self._owns = owns
        self._next = itertools.count(0 if owns else 1, 2)
        self._records: dict[int, Callable[[], Any]] = {}
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._gone: list[int] = []

    def number(self, value: Any) -> tuple[int, bool]:
        """Return the number of a record, and whether it is new."""
        found = self._numbers.get(value)
        if found is not None:
            return found, False
        found = next(self._next)
        self.add(found, value)
        return found, True

    def add(self, number: int, value: Any) -> None:
        """Take a record under its number."""
        if number in self._records:
            refuse(f"record {number} came twice")
        self._numbers[value] = number
        if self._owns:
            self._records[number] = weakref.ref(value, lambda _: self._gone.append(number))
        else:
            self._records[number] = lambda: value

    def get(self, number: Any) -> Any:
        """Return the record of a number."""
        found = self._records[number]() if type(number) is int and number in self._records else None
        if found is None:
            refuse(f"a record {number!r} was named that was never sent")
        return found

    def dropped(self) -> list[int]:
        """Forget the records that are gone here; return their numbers."""
        found = []
        while self._gone:
            found.append(self._gone.pop())
        self.drop(found)
        return found

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget records that the other end has let go of, or never got."""
        for number in numbers:
            found = self._records.pop(number, None)
            value = None if found is None else found()
            if value is not None:
                self._numbers.pop(value, None)

    def __len__(self) -> int:
        """Return how many records are held."""
        return len(self._records)
