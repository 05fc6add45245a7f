"""Write arrays to shards in the safetensors layout, and show those that lie in them.

A shard is a file that the safetensors library reads too: the length of a header, the header as JSON, the values. Room
for the header is left first and filled last, so that values are written as they come. A dtype that the layout has no
name for is kept as bytes; padiff's own records say what it was.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from padiff.codec import DTYPES
from padiff.errors import InputError
from padiff.numerics import Array
from padiff.trace._folder import Folder
from padiff.trace._proof import Proof
from padiff.trace._staging import Staged

_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
ALIGNED = 8
_SMALL, _TOGETHER = 1 << 14, 1 << 20
"""Bytes of a small value, and of how many of them are written in one go."""
_LONGEST_NAME = 160
_LARGEST = 2 << 30
"""Bytes of values after which another shard begins."""
_MOST_DIMENSIONS = 64
_SHARD = re.compile(r"shard-\d{5,9}\.safetensors")


@attrs.frozen
class Placed:
    """The place of an array in a directory: where it begins in which shard, and what it is."""

    shard: str
    start: int
    dtype: str
    shape: tuple[int, ...]
    sum: int

    @property
    def plausible(self) -> bool:
        """Return whether such an array can lie in a file of such a name."""
        numbers = (self.start, self.sum, *self.shape)
        whole = all(type(number) is int and number >= 0 for number in numbers) and len(self.shape) <= _MOST_DIMENSIONS
        return bool(whole and self.dtype in DTYPES and _SHARD.fullmatch(self.shard))

    @property
    def size(self) -> int:
        """Return how many bytes it takes."""
        size = DTYPES[self.dtype].itemsize
        for extent in self.shape:
            size *= extent  # of Python's own integers, which do not wrap
        return size


class Shard:
    """A shard that is being written, under a name of its own until it is finished."""

    def __init__(self, folder: Folder, number: int, room: int) -> None:
        self.name = f"shard-{number:05d}.safetensors"
        self._folder = folder
        self._room = room
        self._entries: list[str] = []
        self._header = 2
        self._size = 0
        self._small: list[Array] = []
        """What is not written yet, and follows what is."""
        self._waiting = 0
        self._file = folder.opened(self.name)
        self._file.seek(8 + room)

    @property
    def start(self) -> int:
        """Return where the next array will lie."""
        return 8 + self._room + self._size + -self._size % ALIGNED

    def takes(self, size: int) -> bool:
        """Return whether another array of so many bytes has room; an empty shard takes any."""
        if not self._entries:
            return True
        return self._size + size <= _LARGEST and self._header + 2 * (_LONGEST_NAME + 240) <= self._room

    def put(self, value: Staged, name: str, number: int) -> Placed:
        """Write one value; return where it lies."""
        padding, start = -self._size % ALIGNED, self.start
        if padding:
            self._entry(f"_{self._size}", "U8", [padding], [np.zeros(padding, np.uint8)])
        spelled = _NAMES.get(value.dtype)
        shape = list(value.shape) if spelled else [value.size]
        kept = name.encode("ascii", "replace").decode()[: _LONGEST_NAME - 12]
        self._entry(f"{kept}#{number}", spelled or "U8", shape, value.parts)
        return Placed(self.name, start, value.dtype, value.shape, value.sum)

    def _entry(self, name: str, dtype: str, shape: list[int], parts: Sequence[Array]) -> None:
        size = sum(part.nbytes for part in parts)
        about = {"dtype": dtype, "shape": shape, "data_offsets": [self._size, self._size + size]}
        entry = f"{json.dumps(name)}:{json.dumps(about, separators=(',', ':'))}"
        self._entries.append(entry)
        self._header += len(entry) + 1
        if size <= _SMALL:
            self._small += [np.array(part) for part in parts]  # whose memory is used again
            self._waiting += size
        if size > _SMALL or self._waiting >= _TOGETHER:
            self._flush()
        if size > _SMALL:
            _write(self._file, parts)
        self._size += size

    def _flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            _write(self._file, [np.concatenate(self._small)])
        self._small, self._waiting = [], 0

    def bytes_at(self, placed: Placed) -> Array:
        """Return the bytes of an array that this shard, unfinished, holds."""
        self._flush()
        return np.frombuffer(os.pread(self._file.fileno(), placed.size, placed.start), np.uint8)

    def finish(self) -> None:
        """Write the header, and give the shard its name."""
        self._flush()
        header = f"{{{','.join(self._entries)}}}".encode()
        assert len(header) <= self._room
        self._file.seek(0)
        _write(self._file, [np.frombuffer(struct.pack("<Q", self._room) + header.ljust(self._room), np.uint8)])
        self._folder.finish(self.name, self._file)

    def discard(self) -> None:
        """Remove what was written."""
        self._folder.discard(self.name, self._file)


def _write(file: Any, parts: Iterable[Array]) -> None:
    """Write bytes that lie in several places.

    One by one: written in one go they lie in larger pages, which a comparison maps in less time, but the system takes
    twice as long to find such pages.
    """
    for part in parts:
        left: Any = part.data
        while left:
            left = left[file.write(left) :]


class ShardReader:
    """What shows the arrays of a directory's shards when they are asked for, and tries the checksum of each at first.

    In another process it is one that has read nothing yet.
    """

    def __init__(self, folder: Folder, run: str = "") -> None:
        self._folder = folder
        self.run = run
        """What the run is called, where it has a name."""
        self._sound: set[Placed] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes another one."""
        return ShardReader, (self._folder, self.run)

    def anew(self) -> ShardReader:
        """Return another one, which has read nothing yet."""
        return ShardReader(self._folder, self.run)

    def get(self, placed: Placed) -> Array:
        """Return an array; raise `InputError` where its bytes are not there, or not those that were written."""
        array, proof = self.unproven(placed)
        if proof is not None:
            proof.finish()
        return array

    def unproven(self, placed: Placed) -> tuple[Array, Proof | None]:
        """Return an array, and what is still to be asked whether its bytes are those that were written.

        Raises `InputError` where they are not there.
        """
        raw = self._bytes(placed)
        array: Array = raw.view(DTYPES[placed.dtype]).reshape(placed.shape)
        if placed in self._sound:
            return array, None
        return array, Proof(raw, placed.sum, partial(self._sound.add, placed), partial(self._damaged, placed))

    def _damaged(self, placed: Placed) -> InputError:
        what = f"{placed.dtype}{list(placed.shape)} at byte {placed.start} of {self._folder.at(placed.shard)}"
        return InputError(f"{what} is damaged: its bytes are not those that were written.\n{_HINT}")

    def lent(self, placed: Placed) -> InShard:
        """Return what reads an array in another process."""
        return InShard(self, placed)

    def _bytes(self, placed: Placed) -> Array:
        try:
            return self._folder.array(placed.shard, placed.start, placed.size)
        except EOFError as error:
            path = self._folder.at(placed.shard)
            msg = f"{path} was cut off: it has {error} bytes, and not {placed.start + placed.size}.\n{_HINT}"
            raise InputError(msg) from None
        except OSError as error:
            path = self._folder.at(placed.shard)
            msg = f"{path} cannot be read: {error.strerror or error}.\n{_HINT}"
            raise InputError(msg) from error


@attrs.frozen
class InShard:
    """Where an array of a directory lies: see `Lent`."""

    reader: ShardReader
    placed: Placed

    @property
    def bytes(self) -> int:
        """Return how many bytes it takes."""
        return self.placed.size

    @property
    def name(self) -> str | None:
        """Return what no other value is called."""
        return f"{self.reader.run} {self.placed!r}" if self.reader.run else None

    def read(self) -> Array:
        """Return the array; raises `InputError` as `ShardReader.get`."""
        return self.reader.get(self.placed)

    def unproven(self) -> tuple[Array, Proof | None]:
        """Return the array, and its checksum where it is still to be tried: see `ShardReader.unproven`."""
        return self.reader.unproven(self.placed)


_HINT = "Hint: whatever else the directory holds can be read; copy it again, or record again."
