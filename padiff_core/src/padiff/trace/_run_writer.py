"""Write a recorded run to a directory, step after step."""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np

from padiff.codec import DTYPES, Unsendable
from padiff.errors import InputError
from padiff.numerics import Array
from padiff.trace._directory import FORMAT, MANIFEST, VERSION, PlacedStore, records_name, run_codec
from padiff.trace._folder import Folder, folder_of
from padiff.trace._model import Description
from padiff.trace._records import Trace
from padiff.trace._run import Kept
from padiff.trace._shards import Placed, Shard, ShardReader, checksum

_ROOM = 1 << 14, 1 << 20
"""Bytes that a shard has for its header: the first one of a directory, and any later one at most."""


class _Inline:
    """Where the arrays go that stand in records themselves: to the shards too."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer

    def put(self, array: Array) -> list[int | str]:
        """Keep an array; return what says where it lies."""
        placed = self._writer.put(array, "record")
        return [placed.shard, placed.start, placed.sum]


class RunWriter:
    """What writes a run to a directory, step after step. Not for several threads at once."""

    def __init__(self, folder: str | os.PathLike[str], about: Description, values: Kept) -> None:
        """Make the directory; raise `InputError` where it holds something, or cannot be made."""
        self.folder = folder_of(folder)
        self._values = values
        self._shard: Shard | None = None
        self._numbers = 0
        self._shards = 0
        self._room = _ROOM[0]
        self._known: dict[tuple[int, int], Placed] = {}
        self.reader = ShardReader(self.folder)
        try:
            self.folder.make()
            empty = not self.folder.names()
        except OSError as error:
            raise _unwritten(self.folder, error) from error
        if not empty:
            msg = f"{self.folder.where} holds something already; nothing of it was touched.\n"
            msg += "Hint: give a directory that is new or empty."
            raise InputError(msg)
        self._write(MANIFEST, {"id": uuid.uuid4().hex, "values": values, "about": about})

    def read(self, placed: Placed) -> Array:
        """Return an array that was written."""
        if self._shard is not None and placed.shard == self._shard.name:
            return self._shard.bytes_at(placed).view(DTYPES[placed.dtype]).reshape(placed.shape)
        return self.reader.get(placed)

    def put(self, array: Array, name: str = "") -> Placed:
        """Write one array, if its bytes do not lie there yet; return where it lies."""
        array = np.asarray(array, order="C")
        try:
            return self._put(array, name)
        except OSError as error:
            self.discard()
            raise _unwritten(self.folder, error) from error

    def _put(self, array: Array, name: str) -> Placed:
        found = checksum(array)
        known = self._known.get((found, array.nbytes))
        if known is not None and self._is_same(known, array):
            dtype = Shard.name_of(array.dtype)
            return attrs.evolve(known, dtype=dtype, shape=tuple(array.shape))
        if self._shard is not None and not self._shard.takes(array):
            self._finish_shard()
            self._room = min(4 * self._room, _ROOM[1])
        if self._shard is None:
            self._shard = Shard(self.folder, self._shards, self._room)
            self._shards += 1
        self._numbers += 1
        placed = self._shard.put(array, name, self._numbers, found)
        self._known[placed.sum, array.nbytes] = placed
        return placed

    def _is_same(self, known: Placed, array: Array) -> bool:
        kept = self.read(known).reshape(-1).view(np.uint8)
        return np.array_equal(kept, array.reshape(-1).view(np.uint8))

    def _finish_shard(self) -> None:
        if self._shard is not None:
            self._shard.finish()
        self._shard = None

    def finish(self, step: int, trace: Trace) -> None:
        """Write the records of a step, which is there for good then; its values are put where they are not yet."""
        if not isinstance(trace.store, PlacedStore):
            places = [self.put(array) for array in trace.store.arrays()]
            trace = attrs.evolve(trace, store=PlacedStore(self.reader, places), samples={}, outputs=[])
        self._write(records_name(step), trace)

    def _write(self, name: str, value: Any) -> None:
        try:
            codec = run_codec()
            text = codec.encode(value, _Inline(self))
            self._finish_shard()
            head = {
                "format": FORMAT,
                "version": VERSION,
                "bytes": len(text),
                "crc": zlib.crc32(text),
                "fields": codec.layout(),
            }
            self.folder.write(name, json.dumps(head).encode() + b"\n" + text)
        except (OSError, InputError) as error:
            self.discard()
            raise _unwritten(self.folder, error) if isinstance(error, OSError) else error from error
        except Unsendable as error:
            self.discard()
            where = self.folder.where
            msg = f"what was recorded cannot be written to {where}: {error}.\nHint: this is a bug of padiff's."
            raise InputError(msg) from error

    def discard(self) -> None:
        """Remove what was written since the last finished step."""
        if self._shard is not None:
            self._shard.discard()
            self._known = {key: place for key, place in self._known.items() if place.shard != self._shard.name}
        self._shard = None


def _unwritten(folder: Folder, error: OSError) -> InputError:
    msg = f"{folder.where} cannot be written to: {error.strerror or error}.\n"
    return InputError(f"{msg}Hint: free space, or give another directory; the steps that were finished are kept.")


def write_run(
    folder: str | os.PathLike[str], about: Description, traces: Iterable[tuple[int, Trace]], values: Kept = "tensors"
) -> None:
    """Write a run to a directory, which must be new or empty: what is known of the model, and the trace of each step.

    Raises `InputError` where that cannot be; the steps that were written are kept.
    """
    writer = RunWriter(folder, about, values)
    for step, trace in traces:
        writer.finish(step, trace)
