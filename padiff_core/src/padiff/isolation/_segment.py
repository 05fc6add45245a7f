"""Share memory between processes: segments without a name, and the spaces in them that values take.

A segment is an anonymous file (``memfd``; where the system has none, an unlinked temporary file), mapped by the
process that writes to it and, read-only, by those that its descriptor is passed to. Nothing of it is in any
directory, so the last process that ends, however it ends, leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.numerics import numpy_dtype

__all__ = ["Arena", "Block", "Segment", "Space"]

Array = NDArray[Any]

_SMALLEST = 64 << 20  # of addresses: pages are taken when they are first written to
_ALIGNMENT = 64
_numbers = itertools.count(1)


class Segment:
    """Map one piece of shared memory."""

    def __init__(self, name: int, size: int, descriptor: int, *, writable: bool) -> None:
        self.name = name
        self.size = size
        self.descriptor = descriptor
        rights = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
        self.bytes: Array = np.frombuffer(mmap.mmap(descriptor, size, mmap.MAP_SHARED, rights), np.uint8)
        self.address = int(self.bytes.__array_interface__["data"][0])

    @classmethod
    def create(cls, size: int) -> Segment:
        """Return a new segment, filled with zeros, that this process can write to."""
        descriptor = _anonymous_file()
        os.ftruncate(descriptor, size)
        return cls(os.getpid() << 32 | next(_numbers), size, descriptor, writable=True)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # a sandbox may refuse it
            return os.memfd_create("padiff")
    with tempfile.TemporaryFile(prefix="padiff-") as file:
        return os.dup(file.fileno())


class Block:
    """Keep an array's place in another process's segment taken for as long as the array, or a view of it, lives."""

    __slots__ = ("__array_interface__", "_loan", "_returned", "_segment")

    def __init__(self, segment: Segment, offset: int, size: int, loan: int, returned: list[int]) -> None:
        data = (segment.address + offset, True)
        self.__array_interface__ = {"data": data, "shape": (size,), "typestr": "|u1", "version": 3}
        self._segment = segment
        self._loan = loan
        self._returned = returned

    def array(self, dtype: str, shape: tuple[int, ...]) -> Array:
        """Return the read-only array that lies there."""
        return np.asarray(self).view(numpy_dtype(dtype)).reshape(shape)

    def __del__(self) -> None:
        self._returned.append(self._loan)


class Space:
    """Name some bytes of one segment."""

    __slots__ = ("offset", "segment", "size")

    def __init__(self, segment: Segment, offset: int, size: int) -> None:
        self.segment = segment
        self.offset = offset
        self.size = size

    def hold(self, array: Array) -> None:
        """Copy an array there, in C order."""
        flat = self.segment.bytes[self.offset : self.offset + array.nbytes]
        np.copyto(flat.view(array.dtype).reshape(array.shape), array)


class Arena:
    """Hand out space in segments of this process, one segment for many values, and take it back."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        self._holes: dict[int, list[tuple[int, int]]] = {}
        """Name of a segment -> its free ranges (start, end), in order, never touching."""

    def take(self, size: int) -> Space:
        """Return free space of at least that size, the lowest there is: it was used last, and is warm."""
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        for segment in self._segments.values():
            holes = self._holes[segment.name]
            for index, (start, end) in enumerate(holes):
                if end - start >= size:
                    holes[index : index + 1] = [(start + size, end)] if end - start > size else []
                    return Space(segment, start, size)
        whole = max(size, _SMALLEST)
        segment = Segment.create(-(-whole // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._segments[segment.name] = segment
        self._holes[segment.name] = [(size, segment.size)] if segment.size > size else []
        return Space(segment, 0, size)

    def give_back(self, space: Space) -> None:
        """Take space back."""
        holes = self._holes[space.segment.name]
        start, end = space.offset, space.offset + space.size
        index = bisect_left(holes, (start, end))
        if index < len(holes) and holes[index][0] == end:
            end = holes.pop(index)[1]
        if index and holes[index - 1][1] == start:
            index -= 1
            start = holes.pop(index)[0]
        holes.insert(index, (start, end))

    def segment(self, name: int) -> Segment | None:
        """Return one of its own segments."""
        return self._segments.get(name)

    def trim(self) -> Iterator[int]:
        """Let go of the segments that nothing lies in; yield their names."""
        for name, holes in list(self._holes.items()):
            if holes == [(0, self._segments[name].size)]:
                del self._segments[name], self._holes[name]
                yield name

    @property
    def taken(self) -> int:
        """Return how many bytes are handed out."""
        whole = sum(segment.size for segment in self._segments.values())
        return whole - sum(end - start for holes in self._holes.values() for start, end in holes)

    @property
    def segments(self) -> int:
        """Return how many segments there are."""
        return len(self._segments)
