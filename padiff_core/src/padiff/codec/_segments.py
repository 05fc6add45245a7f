"""Hold arrays in mapped files, which processes share: segments without a name.

A segment is an anonymous file (``memfd``; where the system has none, and beyond a store's budget, an unlinked temporary
file), mapped by the process that writes to it and, read-only, by those that its descriptor is passed to. Nothing of it
is in any directory, and it is gone with the last array that lies in it: no process leaves anything behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import tempfile
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.codec._errors import refuse

Array = NDArray[Any]

_ALIGNMENT = 64
_LARGE = 1 << 16
_MOST_HOMES = 200  # the kernel passes on 253 descriptors at once

_segments: weakref.WeakSet[Segment] = weakref.WeakSet()
"""All that is mapped here: what lies there is handed on as it is."""


class Segment:
    """One piece of shared memory, mapped here for as long as an array lies in it."""

    def __init__(self, descriptor: int, *, writable: bool) -> None:
        found = os.fstat(descriptor)
        self.size = found.st_size
        if not stat.S_ISREG(found.st_mode) or not self.size:
            msg = "what came as shared memory is none"
            raise ValueError(msg)
        rights = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
        self._map = mmap.mmap(descriptor, self.size, mmap.MAP_SHARED, rights)
        self.address = int(np.frombuffer(self._map, np.uint8).__array_interface__["data"][0])
        data = (self.address, not writable)
        self.__array_interface__ = {"data": data, "shape": (self.size,), "typestr": "|u1", "version": 3}
        self.descriptor = descriptor  # last: who gives it closes it where this fails
        _segments.add(self)

    @classmethod
    def create(cls, size: int, *, on_disk: bool = False) -> Segment:
        """Return a new segment, filled with zeros, that this process can write to."""
        descriptor = _anonymous_file(on_disk=on_disk)
        try:
            os.ftruncate(descriptor, -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE)
            _seal(descriptor)
            return cls(descriptor, writable=True)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def received(cls, descriptor: int) -> Segment:
        """Map what another process passed on; raise `ValueError` for what is no memory, or could be cut short."""
        if not _is_fixed(descriptor):
            msg = "shared memory came that its sender could take away"
            raise ValueError(msg)
        return cls(descriptor, writable=False)

    def array(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array that lies at an offset."""
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if offset + size > self.size:
            refuse(f"an array of {size} bytes at {offset} was announced in {self.size} bytes of shared memory")
        return np.asarray(self)[offset : offset + size].view(dtype).reshape(shape)

    def write(self, offset: int, array: Array) -> Array:
        """Copy an array to an offset; return it as it lies there."""
        kept = self.array(offset, array.dtype, array.shape)
        if array.nbytes < _LARGE or not array.flags.c_contiguous:
            np.copyto(kept, array)
            return kept
        # The system fills fresh pages in half the time that it takes to map each of them when it is first written to.
        data = array.reshape(-1).view(np.uint8)
        while data.size:
            done = os.pwrite(self.descriptor, data.data, offset)
            offset, data = offset + done, data[done:]
        return kept

    @staticmethod
    def mapped() -> dict[str, int]:
        """Return how many segments this process maps, and their bytes."""
        return {"segments": len(_segments), "bytes": sum(segment.size for segment in _segments)}

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.descriptor)


def _anonymous_file(*, on_disk: bool) -> int:
    if not on_disk and hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # a sandbox may refuse it
            return os.memfd_create("padiff", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile(prefix="padiff-") as file:
        return os.dup(file.fileno())


def _seal(descriptor: int) -> None:
    """Fix the size of memory, so that who maps it can rely on it; a file on disk cannot be fixed."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def _is_fixed(descriptor: int) -> bool:
    """Return whether memory's size is fixed, or it is an unlinked file."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        return bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    return os.fstat(descriptor).st_nlink == 0


def home_of(array: Array) -> tuple[Segment, int] | None:
    """Return the segment that an array lies in as it is, and where; None for memory of this process alone."""
    if not (_segments and array.nbytes and array.flags.c_contiguous):
        return None
    start = int(array.__array_interface__["data"][0])
    for segment in _segments:
        if segment.address <= start and start + array.nbytes <= segment.address + segment.size:
            return segment, start - segment.address
    return None


def aligned(offset: int) -> int:
    """Return the next offset at which an array may begin."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


class Outgoing:
    """The arrays of a message that is written: those that lie in shared memory stay there, the others are copied."""

    def __init__(self) -> None:
        self._homes: list[Segment] = []
        self._copies: list[tuple[int, Array]] = []
        self._size = 0

    def put(self, array: Array) -> list[int]:
        """Keep an array; return its segment's number (-1 for the message's own, the last one) and its offset."""
        home = home_of(array)
        if home is not None and (home[0] in self._homes or len(self._homes) < _MOST_HOMES):
            segment, offset = home
            if segment not in self._homes:
                self._homes.append(segment)
            return [self._homes.index(segment), offset]
        offset = aligned(self._size)
        self._size = offset + array.nbytes
        self._copies.append((offset, array))
        return [-1, offset]

    def segments(self) -> list[Segment]:
        """Return the segments that must come with the message."""
        if not self._copies:
            return self._homes
        own = Segment.create(self._size)
        for offset, array in self._copies:
            own.write(offset, array)
        return [*self._homes, own]


class Incoming:
    """The arrays of a message that is read."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments

    def get(self, place: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array at a place."""
        index, offset = place
        inside = type(index) is int and -1 <= index < len(self._segments) and type(offset) is int and offset >= 0
        if not inside or not self._segments:
            refuse(f"an array came at {str(place)[:80]} of {len(self._segments)} segments")
        found: Array = self._segments[index].array(offset, dtype, shape)
        return found
