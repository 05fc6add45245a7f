"""Write a recorded run to a directory, step after step."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
import zlib
from typing import Any, Generic, TypeVar

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
from padiff.trace._shards import ALIGNED, Placed, Shard, ShardReader
from padiff.trace._staging import Staged

Key = TypeVar("Key")
_ROOM = 1 << 14, 1 << 20
"""Bytes that a shard has for its header: the first one of a directory, and any later one at most."""


class _Recent(Generic[Key]):
    """Where lies what was written in the step that is open, or in the one before it: so it is written once.

    The rest is forgotten, so that memory is bounded however long a run is.
    """

    def __init__(self) -> None:
        self._now: dict[Key, Placed] = {}
        self._before: dict[Key, Placed] = {}

    def get(self, key: Key) -> Placed | None:
        """Return where something lies, if that is known."""
        found = self._now.get(key) or self._before.get(key)
        if found is not None:
            self._now[key] = found
        return found

    def put(self, key: Key, placed: Placed) -> None:
        """Know where something lies."""
        self._now[key] = placed

    def end_step(self) -> None:
        """Forget what the step that ends did not ask for."""
        self._now, self._before = {}, self._now

    def forget(self, shard: str) -> None:
        """Forget what lies in a shard, which was removed."""
        for known in self._now, self._before:
            for key in [key for key, placed in known.items() if placed.shard == shard]:
                del known[key]


class _Inline:
    """Where the small arrays go that stand in records themselves: together, as one value of a shard."""

    def __init__(self, writer: RunWriter) -> None:
        self.bytes = bytearray()
        self._writer = writer

    def put(self, array: Array) -> list[int | str]:
        """Keep an array; return what says where it lies."""
        raw = array.tobytes()
        placed = self._writer.inline.get(raw)
        if placed is None:
            placed = self._placed(Staged.of(np.frombuffer(raw, np.uint8)))
            self._writer.inline.put(raw, placed)
        return [placed.shard, placed.start, placed.sum]

    def _placed(self, value: Staged) -> Placed:
        known = self._writer.known(value)
        if known is not None:
            return known
        shard = self._writer.open_shard(0)
        start = shard.start + len(self.bytes)
        self.bytes += value.parts[0].tobytes().ljust(value.size + -value.size % ALIGNED, b"\0")
        return Placed(shard.name, start, value.dtype, value.shape, value.sum)


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
        self._known: _Recent[tuple[int, int]] = _Recent()
        self.inline: _Recent[bytes] = _Recent()
        """Where the small arrays of records lie."""
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

    def put(self, value: Staged, name: str = "") -> Placed:
        """Write one value, if its bytes do not lie there yet; return where it lies."""
        try:
            return self._put(value, name)
        except OSError as error:
            self.discard()
            raise _unwritten(self.folder, error) from error

    def _put(self, value: Staged, name: str) -> Placed:
        placed = self.known(value)
        if placed is None:
            self._numbers += 1
            placed = self.open_shard(value.size).put(value, name, self._numbers)
            self._known.put((value.sum, value.size), placed)
        return placed

    def known(self, value: Staged) -> Placed | None:
        """Return where the bytes of a value lie already, if that is known."""
        found = self._known.get((value.sum, value.size))
        if found is None or not value.holds(self.read(found)):
            return None
        return attrs.evolve(found, dtype=value.dtype, shape=value.shape)

    def open_shard(self, size: int) -> Shard:
        """Return the shard that has room for so many bytes more."""
        if self._shard is not None and not self._shard.takes(size):
            self._finish_shard()
            self._room = min(4 * self._room, _ROOM[1])
        if self._shard is None:
            self._shard = Shard(self.folder, self._shards, self._room)
            self._shards += 1
        return self._shard

    def _finish_shard(self) -> None:
        if self._shard is not None:
            self._shard.finish()
        self._shard = None

    def finish(self, step: int, trace: Trace) -> None:
        """Write the records of a step, which is there for good then; its values are put where they are not yet."""
        if not isinstance(trace.store, PlacedStore):
            places = [self.put(Staged.of(array)) for array in trace.store.arrays()]
            trace = attrs.evolve(trace, store=PlacedStore(self.reader, places), samples={}, outputs=[])
        self._write(records_name(step), trace)
        self._known.end_step()
        self.inline.end_step()

    def _write(self, name: str, value: Any) -> None:
        try:
            codec = run_codec()
            inline = _Inline(self)
            text = codec.encode(value, inline)
            if inline.bytes:
                self._numbers += 1
                self.open_shard(0).put(Staged.of(np.frombuffer(inline.bytes, np.uint8)), "records", self._numbers)
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

    def withdraw(self) -> None:
        """Remove the manifest of a run that has no step, so that the next run can have the directory."""
        with contextlib.suppress(OSError):
            self.folder.remove(MANIFEST)

    def discard(self) -> None:
        """Remove what was written since the last finished step."""
        if self._shard is not None:
            self._shard.discard()
            self._known.forget(self._shard.name)
            self.inline.forget(self._shard.name)
        self._shard = None


def _unwritten(folder: Folder, error: OSError) -> InputError:
    msg = f"{folder.where} cannot be written to: {error.strerror or error}.\n"
    return InputError(f"{msg}Hint: free space, or give another directory; the steps that were finished are kept.")
