"""Copy values that are about to be written, into memory that is used again: fresh pages cost more than the copy."""

from __future__ import annotations

import threading

import numpy as np

from padiff.numerics import Array

_SMALL = 1 << 16
"""Bytes below which the allocator's own memory is used again anyway."""


class Staging:
    """Memory for copies, of which as much is kept as may wait to be written."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.kept = 0
        """Bytes that are kept, and free."""
        self._free: dict[int, list[Array]] = {}
        self._lock = threading.Lock()

    def copy(self, array: Array) -> Array:
        """Return a copy in C order, to be given back to `reuse` once it is of no use any more."""
        if array.nbytes < _SMALL:
            return np.array(array, order="C")
        with self._lock:
            buffer = self._taken(array.nbytes) if array.nbytes in self._free else None
        if buffer is None:
            buffer = np.empty(array.nbytes, np.uint8)
        copied: Array = buffer.view(array.dtype).reshape(array.shape)
        np.copyto(copied, array)
        return copied

    def reuse(self, copied: Array) -> None:
        """Take the memory of a copy back; that of sizes which are not asked for any more goes first."""
        if copied.nbytes < _SMALL:
            return
        buffer = copied.reshape(-1).view(np.uint8)
        with self._lock:
            buffers = self._free.pop(buffer.nbytes, [])
            self._free[buffer.nbytes] = [*buffers, buffer]  # behind the sizes that came back before
            self.kept += buffer.nbytes
            while self.kept > self._most:
                self._taken(next(iter(self._free)))

    def _taken(self, size: int) -> Array:
        """Return free memory of a size, which is there, and is free no longer."""
        buffers = self._free[size]
        buffer = buffers.pop()
        if not buffers:
            del self._free[size]
        self.kept -= size
        return buffer
