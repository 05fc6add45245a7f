"""Keep recorded values: each once, in memory up to a budget, beyond it in temporary files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import attrs

from padiff.codec import Segment, aligned
from padiff.numerics import Array

_SHARE_OF_MEMORY = 4
_SMALLEST = 16 << 20  # of addresses: pages are taken when they are first written to
_LARGEST = 1 << 30


def _default_budget() -> int:
    """Return a quarter of the machine's memory, in bytes; ``PADIFF_MEMORY_BUDGET`` (bytes) overrides it."""
    asked = os.environ.get("PADIFF_MEMORY_BUDGET")
    if asked:
        return int(asked)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // _SHARE_OF_MEMORY


class Lent(Protocol):
    """Where a value lies: plain data, which reads it in whatever process it comes to."""

    @property
    def bytes(self) -> int:
        """Return how many bytes it takes."""

    @property
    def name(self) -> str | None:
        """Return what no other value is called, of any run; None where that is not known."""

    def read(self) -> Array:
        """Return the value; never write to it."""


class Reading(Protocol):
    """How an array is read: some of its rows, or its axes in another order."""

    def read(self, array: Array) -> Array:
        """Return what is read of it; a view where possible."""


@attrs.frozen
class _ReadLent:
    """Where a value lies that is read in some way: see `Lent`."""

    inner: Lent
    reading: Reading

    @property
    def bytes(self) -> int:
        """Return how many bytes the whole takes."""
        return self.inner.bytes

    @property
    def name(self) -> str | None:
        """Return what no other value is called."""
        return self.inner.name and f"{self.inner.name} {self.reading!r}"

    def read(self) -> Array:
        """Return what is read of it."""
        return self.reading.read(self.inner.read())


class ValueStore:
    """Hold arrays under small integer keys.

    What is put must own its memory and not be changed afterwards: the store does not copy. Once ``budget`` bytes lie
    in memory, further arrays are written to unnamed temporary files and read back as read-only memory maps.
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = _default_budget() if budget is None else budget
        self.in_memory = 0
        self.on_disk = 0
        self._values: list[Array] = []
        self._segment: Segment | None = None
        self._end = 0
        """Where what follows lies in the segment."""
        self._spilling = False

    @classmethod
    def of(cls, arrays: Iterable[Array]) -> ValueStore:
        """Return a store that holds arrays where they lie, under their numbers."""
        store = ValueStore()
        store._values.extend(arrays)
        return store

    def arrays(self) -> Sequence[Array]:
        """Return all that is kept, in the order of the keys; never write to it."""
        return self._values

    def put(self, array: Array) -> int:
        """Keep one array; return its key."""
        spilled = self.in_memory + array.nbytes > self.budget
        self._values.append(self._kept(array, spilled=spilled))
        self.in_memory += 0 if spilled else array.nbytes
        self.on_disk += array.nbytes if spilled else 0
        return len(self._values) - 1

    def _kept(self, array: Array, *, spilled: bool) -> Array:
        return self._mapped(array, spilled=True) if spilled else array

    def get(self, key: int) -> Array:
        """Return the array of a key; never write to it."""
        return self._values[key]

    def lent(self, key: int) -> Lent | None:
        """Return what reads an array in another process too, or None."""
        return None

    def close(self) -> None:
        """Let go of everything; the temporary files disappear."""
        self._values.clear()
        self._segment = None

    def _mapped(self, array: Array, *, spilled: bool) -> Array:
        """Return an array as it lies in a mapped file: of memory, or of the disk."""
        segment = self._segment
        if segment is None or self._end + array.nbytes > segment.size or spilled is not self._spilling:
            grown = _SMALLEST if segment is None else min(2 * segment.size, _LARGEST)
            segment = self._segment = Segment.create(max(grown, array.nbytes), on_disk=spilled)
            self._end, self._spilling = 0, spilled
        kept = segment.write(self._end, array)
        kept.flags.writeable = False
        self._end = aligned(self._end + array.nbytes)
        return kept


class SharedStore(ValueStore):
    """A store whose values lie in shared memory, where another process reads them without a copy."""

    def _kept(self, array: Array, *, spilled: bool) -> Array:
        return self._mapped(array, spilled=spilled)


class MadeStore(ValueStore):
    """A store whose values functions make, each whenever it is asked for."""

    def __init__(self) -> None:
        super().__init__(0)
        self._makers: list[tuple[Callable[[], Array], Lent | None]] = []

    def promise(self, make: Callable[[], Array], lent: Lent | None = None) -> int:
        """Return the key of a value that a function makes; ``lent`` makes it in another process too."""
        self._makers.append((make, lent))
        return len(self._makers) - 1

    def get(self, key: int) -> Array:
        """Return the value of a key; never write to it."""
        return self._makers[key][0]()

    def lent(self, key: int) -> Lent | None:
        """Return what makes the value of a key in another process too, or None."""
        return self._makers[key][1]

    def arrays(self) -> Sequence[Array]:
        """Return all values, in the order of the keys."""
        return [self.get(key) for key in range(len(self._makers))]


class ReadStore(ValueStore):
    """A store that shows some values of another as they are read in some way."""

    def __init__(self, inner: ValueStore) -> None:
        super().__init__(0)
        self._inner = inner
        self.readings: dict[int, tuple[int, Reading]] = {}
        """Key -> that of the other store, and how its value is read."""
        self._next: int = inner._next if isinstance(inner, ReadStore) else 1 << 40

    def add(self, key: int, reading: Reading) -> int:
        """Show a value as it is read; return its new key."""
        new = self._next
        self._next += 1
        self.readings[new] = key, reading
        return new

    def get(self, key: int) -> Array:
        """Return the array of a key; never write to it."""
        own, reading = self.readings.get(key, (key, None))
        return self._inner.get(own) if reading is None else reading.read(self._inner.get(own))

    def lent(self, key: int) -> Lent | None:
        """Return what reads an array in another process too, or None."""
        own, reading = self.readings.get(key, (key, None))
        inner = self._inner.lent(own)
        return inner if inner is None or reading is None else _ReadLent(inner, reading)


@contextmanager
def temporary_store(budget: int | None = None) -> Iterator[ValueStore]:
    """Give a store that is emptied on leaving."""
    store = ValueStore(budget)
    try:
        yield store
    finally:
        store.close()
