"""Keep recorded values where other processes read them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from padiff.codec import Segment, aligned
from padiff.trace._values import ValueStore

_SMALLEST = 16 << 20  # of addresses: pages are taken when they are first written to
_LARGEST = 1 << 30


class SharedStore(ValueStore):
    """A store whose values lie in shared memory, where another process reads them without a copy."""

    def __init__(self, budget: int | None = None) -> None:
        super().__init__(budget)
        self._segment: Segment | None = None
        self._spilling = False
        self._next = 0

    def put(self, array: NDArray[Any]) -> int:
        """Copy one array into shared memory, beyond the budget into a file; return its key."""
        spilled = self.in_memory + array.nbytes > self.budget
        segment, end = self._segment, self._next + array.nbytes
        if segment is None or end > segment.size or spilled is not self._spilling:
            grown = _SMALLEST if segment is None else min(2 * segment.size, _LARGEST)
            self._segment = Segment.create(max(grown, array.nbytes), on_disk=spilled)
            self._next, self._spilling = 0, spilled
        assert self._segment is not None
        kept = self._segment.write(self._next, array)
        kept.flags.writeable = False
        self._next = aligned(self._next + array.nbytes)
        self.in_memory += 0 if spilled else array.nbytes
        self.on_disk += array.nbytes if spilled else 0
        self._values.append(kept)
        return len(self._values) - 1

    def close(self) -> None:
        """Let go of everything."""
        super().close()
        self._segment = None
