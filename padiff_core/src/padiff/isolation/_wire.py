"""Turn messages into bytes and back: arrays go through shared memory, stand-ins become what they stand for."""

from __future__ import annotations

import functools
import io
import itertools
import pickle
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 and float8 with numpy
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import extent_of
from padiff.isolation._segment import Arena, Block, Segment, Space
from padiff.numerics import numpy_dtype

__all__ = ["INLINE", "Wire", "marker"]

Array = NDArray[Any]

INLINE = 16 << 10
"""Bytes up to which an array travels in the message itself."""
_PLAIN = frozenset({"builtins", "collections", "_codecs", "copyreg"})

_mapped: weakref.WeakSet[Segment] = weakref.WeakSet()
"""The segments of other processes that this one reads: what lies there can be handed on as it is."""


def marker(name: str) -> Callable[..., Any]:
    """Return what stands in a message for the function of that name at the other end."""

    def at_the_other_end(*_: Any) -> Any:
        raise AssertionError(name)

    at_the_other_end.__qualname__ = at_the_other_end.__name__ = name
    globals()[name] = at_the_other_end
    return at_the_other_end


_inline = marker("_inline")
_shared = marker("_shared")
_scalar = marker("_scalar")


class Wire:
    """Pack and unpack what one process exchanges with another.

    ``reduce(value)`` gives ``(marker, arguments)`` for what this side has stand-ins or markers for, else
    ``NotImplemented``; ``revive`` maps a marker's name to the function that the other end's arguments go to.
    ``trusted`` says whether any importable name may come in.
    """

    def __init__(
        self, reduce: Callable[[Any], Any], revive: Mapping[str, Callable[..., Any]], *, trusted: bool
    ) -> None:
        self.arena = Arena()
        self.returned: list[int] = []
        """Loans of the other end whose arrays are gone here."""
        self._reduce = reduce
        self._trusted = trusted
        self._revive = {
            "_inline": _from_bytes,
            "_shared": self._from_segment,
            "_scalar": lambda array: array[()],
            **revive,
        }
        self._lent: dict[int, Space | Array] = {}
        self._loans = itertools.count(1)
        self._theirs: dict[int, Segment] = {}
        self._told: set[int] = set()
        """Names of the segments whose descriptor the other end was given."""

    def pack(self, *messages: Any) -> tuple[bytes, list[Segment]]:
        """Return the bytes of messages, and the segments that must come with them."""
        file, lent = io.BytesIO(), len(self._lent)
        segments: dict[int, Segment] = {}
        packer = _Packer(file, self, segments)
        try:
            for message in messages:
                packer.dump(message)
        except BaseException:
            self.settle(list(self._lent)[lent:])
            raise
        new = [segment for name, segment in segments.items() if name not in self._told]
        self._told.update(segments)
        return file.getvalue(), new

    def unpack(self, data: bytes | bytearray | memoryview, segments: list[Segment]) -> Iterator[Any]:
        """Yield the messages; the arrays in them are read-only."""
        for segment in segments:
            self._theirs[segment.name] = segment
            _mapped.add(segment)
        file = io.BytesIO(data)
        unpacker = _Unpacker(file, self)
        while file.tell() < len(data):
            yield unpacker.load()

    def settle(self, loans: list[int]) -> None:
        """Take back what the other end needs no more."""
        for loan in loans:
            kept = self._lent.pop(loan, None)
            if isinstance(kept, Space):
                self.arena.give_back(kept)

    def retire(self, names: list[int]) -> None:
        """Forget segments that the other end has let go of."""
        for name in names:
            self._theirs.pop(name, None)

    def trim(self) -> list[int]:
        """Let go of empty segments; return the names of those that the other end should forget too."""
        list(self.arena.trim())
        there = {segment.name for segment in _mapped}
        gone = [name for name in self._told if name not in there and self.arena.segment(name) is None]
        self._told.difference_update(gone)
        return gone

    def forget(self) -> None:
        """Let go of all that is shared with the other end, which is no more."""
        self._lent.clear()
        self._theirs.clear()
        self._told.clear()
        self.arena = Arena()

    @property
    def lent(self) -> int:
        """Return how many arrays the other end holds."""
        return len(self._lent)

    def lend(self, array: Array, segments: dict[int, Segment]) -> tuple[Any, tuple[Any, ...]]:
        """Return what stands for an array in a message, and note the segment that it lies in."""
        name, shape = _name_of(array.dtype), array.shape
        if array.nbytes <= INLINE:
            return _inline, (name, shape, array.tobytes())
        segment, offset = _home_of(array)
        loan = next(self._loans)
        if segment is None:
            space = self.arena.take(array.nbytes)
            self._lent[loan] = space
            space.hold(array)
            segment, offset = space.segment, space.offset
        else:
            self._lent[loan] = array
        if segment.name not in self._theirs:
            segments[segment.name] = segment
        return _shared, (loan, segment.name, offset, name, shape)

    def reduce(self, value: Any) -> Any:
        """Return how an object that is no plain data travels."""
        return self._reduce(value)

    def find(self, module: str, name: str) -> Any:
        """Return what a name in a message means here."""
        if module == __name__:
            return self._revive[name]
        if not self._trusted and module not in _PLAIN and not module.startswith("padiff."):
            msg = f"a worker sent a {module}.{name}, which is no plain data"
            raise pickle.UnpicklingError(msg)
        return None

    def _from_segment(self, loan: int, name: int, offset: int, dtype: str, shape: tuple[int, ...]) -> Array:
        segment = self._theirs.get(name) or self.arena.segment(name)
        assert segment is not None, "a segment comes before what lies in it"
        size = int(np.prod(shape)) * numpy_dtype(dtype).itemsize
        return Block(segment, offset, size, loan, self.returned).array(dtype, shape)


def _home_of(array: Array) -> tuple[Segment | None, int]:
    """Return the other process's segment that an array lies in as it is, and where."""
    extent = extent_of(array) if _mapped and array.flags.c_contiguous else None
    if extent is not None:
        for segment in _mapped:
            if segment.address <= extent[0] and extent[1] <= segment.address + segment.size:
                return segment, extent[0] - segment.address
    return None, 0


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # numpy puts it together anew each time


def _from_bytes(dtype: str, shape: tuple[int, ...], data: bytes) -> Array:
    return np.frombuffer(data, np.uint8).view(numpy_dtype(dtype)).reshape(shape)


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, wire: Wire, segments: dict[int, Segment]) -> None:
        super().__init__(file, protocol=5)
        self.wire = wire
        self.segments = segments

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self.wire.lend(value, self.segments)
        if isinstance(value, np.generic):
            return _scalar, (np.asarray(value),)
        return self.wire.reduce(value)


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, wire: Wire) -> None:
        super().__init__(file)
        self.wire = wire

    def find_class(self, module: str, name: str) -> Any:
        found = self.wire.find(module, name)
        return super().find_class(module, name) if found is None else found
