"""Copy values that are about to be written, into memory that is used again: fresh pages cost more than the copy."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence

import attrs
import numpy as np

from padiff.codec import DTYPES, name_of
from padiff.errors import InputError
from padiff.numerics import Array, in_order, same_bytes

_WORDS = 1 << 13
"""Words of 8 bytes that are summed to one."""
SUMMED = 8 * _WORDS
_BLOCK = 4 * SUMMED
"""Bytes that are copied and summed in one go: they stay in the cache between both."""
_SLAB = 32
"""Blocks that are asked for at once: numpy lets so many lie in large pages."""


@attrs.frozen(eq=False)
class Staged:
    """A value that is about to be written: its bytes, which lie in one or several places, and their checksum."""

    dtype: str
    shape: tuple[int, ...]
    parts: Sequence[Array]
    sum: int
    rooms: Sequence[Array] = ()
    """The blocks of a `Staging` in which they lie."""

    @property
    def size(self) -> int:
        """Return how many bytes it takes."""
        return sum(part.nbytes for part in self.parts)

    def holds(self, array: Array) -> bool:
        """Return whether its bytes are those of an array, which has as many."""
        raw, start, same = array.reshape(-1).view(np.uint8), 0, True
        for part in self.parts:
            same = same and same_bytes(part, raw[start : start + part.size])
            start += part.size
        return same

    @classmethod
    def of(cls, array: Array) -> Staged:
        """Return an array where it lies; raise `InputError` where it is none of numbers."""
        name, raw = _named(array), np.asarray(array, order="C").reshape(-1).view(np.uint8)
        return cls(name, tuple(array.shape), [raw], checksum(raw))


def checksum(array: Array, before: int = 0) -> int:
    """Return a number that says whether bytes are what they were: the CRC of the sums of blocks, read at full speed.

    ``before`` is that of the bytes in front of them, which are some whole blocks.
    """
    raw = array.reshape(-1).view(np.uint8)
    whole = raw.size // SUMMED * SUMMED
    if whole:
        words = raw[:whole].view("<u8").reshape(-1, _WORDS)
        before = zlib.crc32(np.add.reduce(words, axis=1), before)
    return zlib.crc32(raw[whole:].data, before) if whole < raw.size else before


class Staging:
    """Memory for copies, of which as much is kept as may wait to be written; what was used last is used first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._slab = max(min(_SLAB, most // _BLOCK), 1)
        self._free: list[Array] = []
        self._lock = threading.Lock()

    @property
    def kept(self) -> int:
        """Return the bytes that are kept, and free."""
        return len(self._free) * _BLOCK

    def copy(self, array: Array) -> Staged:
        """Return a copy, in C order, to be given back to `reuse` once it is of no use any more."""
        if array.nbytes < SUMMED:  # of small ones the allocator's own memory is used again anyway
            return Staged.of(np.array(array, order="C"))
        rooms = self._taken(-(-array.nbytes // _BLOCK))
        parts, found = [], 0
        for room, values in zip(rooms, in_order(array, _BLOCK // array.itemsize), strict=True):
            part = room[: values.nbytes]
            np.copyto(part, values.view(np.uint8))
            found = checksum(part, found)
            parts.append(part)
        return Staged(_named(array), tuple(array.shape), parts, found, rooms)

    def reuse(self, copied: Staged) -> None:
        """Take the memory of a copy back."""
        with self._lock:
            self._free += copied.rooms[: max(self._most - self.kept, 0) // _BLOCK]

    def _taken(self, count: int) -> list[Array]:
        """Return free blocks."""
        with self._lock:
            while len(self._free) < count:
                self._free += list(np.empty((self._slab, _BLOCK), np.uint8))
            found = self._free[-count:]
            del self._free[-count:]
        return found


def _named(array: Array) -> str:
    name = name_of(array.dtype)
    if name not in DTYPES:
        msg = f"an array of {array.dtype} is no array of numbers.\nHint: keep numbers in tensors."
        raise InputError(msg)
    return name
