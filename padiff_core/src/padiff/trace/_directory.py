"""Keep a recorded run in a directory: a manifest, a file of records for each finished step, and shards of values.

A step's shards are finished before its records get their name: so what is there of a step is all of it, whenever the
process ended. What is read may come from a stranger: it holds no code, it names nothing outside, links are not
followed, every size is checked against what is there, and every part has a checksum.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from padiff.codec import Codec, Custom, Known, Malformed, refuse
from padiff.errors import InputError
from padiff.kinds import Part, Placement, Ranks, Unit
from padiff.numerics import Array, sample
from padiff.trace._folder import Folder, folder_of
from padiff.trace._model import Description, ModuleDescription
from padiff.trace._records import TRACE_RECORDS, Frame, ModuleRecord, ParameterRecord, Trace
from padiff.trace._run import Kept, Run, without_step
from padiff.trace._shards import InShard, Placed, ShardReader
from padiff.trace._values import ValueStore

MANIFEST, _STEP = "manifest.json", re.compile(r"step-(\d{8,12})\.json")
FORMAT, VERSION = "padiff run", 1
_LARGEST = 1 << 30
"""Bytes of records, at most."""
_LONGEST_HEAD = 1 << 16
Pool = dict[Any, Any]
"""Records of which one is held for all that are equal."""
_SHARED = (Frame, ModuleRecord, ParameterRecord, Part, Placement)
_RECORDS = (*TRACE_RECORDS, Description, ModuleDescription, Part, Placed, Placement, Ranks, Unit)


class PlacedStore(ValueStore):
    """A store whose values lie in a directory; each is read when it is asked for."""

    def __init__(self, reader: ShardReader, places: Sequence[Placed] = ()) -> None:
        super().__init__(0)
        self.places = list(places)
        self._reader = reader

    def get(self, key: int) -> Array:
        """Return the array of a key where it lies; raise `InputError` where it is damaged."""
        return self._reader.get(self.places[key])

    def lent(self, key: int) -> InShard:
        """Return what reads the array of a key in another process."""
        return self._reader.lent(self.places[key])

    def arrays(self) -> Sequence[Array]:
        """Return all that is kept, in the order of the keys."""
        return [self._reader.get(place) for place in self.places]


class Samples(dict[int, NDArray[np.float64]]):
    """A few elements of each recorded value, taken when they are asked for."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def __contains__(self, token: object) -> bool:
        return token in self._trace.values

    def __missing__(self, token: int) -> NDArray[np.float64]:
        key = self._trace.values[token]
        if key < 0:
            kept = self._trace.summaries[key].sample
            if kept is None:
                raise KeyError(token)
            found = kept.astype(np.float64)
        else:
            found = sample(self._trace.store.get(key))
        self[token] = found
        return found

    def get(self, token: int, default: Any = None) -> Any:
        """Return what is taken of a token's value."""
        try:
            return self[token]
        except KeyError:
            return default


def records_name(step: int) -> str:
    """Return the name of the file that holds the records of a step."""
    return f"step-{step:08d}.json"


def run_codec(reader: ShardReader | None = None, pool: Pool | None = None) -> Codec:
    """Return what writes and reads the records of a run."""

    def places(store: ValueStore) -> list[Placed]:
        assert isinstance(store, PlacedStore)
        return store.places

    def store(found: list[Placed]) -> PlacedStore:
        if type(found) is not list or not all(isinstance(place, Placed) and place.plausible for place in found):
            refuse("its values do not lie in shards")
        return PlacedStore(reader or ShardReader(folder_of("")), found)

    return Codec(_RECORDS, Known(owns=False), {"store": Custom(ValueStore, places, store)}, _SHARED, pool)


class _Inline:
    """Where the arrays come from that stand in records themselves: from the shards too."""

    def __init__(self, reader: ShardReader) -> None:
        self._reader = reader

    def get(self, place: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array that lies at a place."""
        placed = Placed(place[0], place[1], dtype.name, shape, place[2])
        if not placed.plausible:
            refuse(f"an array is said to lie at {str(place)[:80]}")
        array: Array = np.array(self._reader.get(placed))  # by itself: of a file's bytes more would be held than these
        array.flags.writeable = False
        return array


class _Directory:
    """A run in a directory."""

    def __init__(self, folder: Folder, pool: Pool) -> None:
        self.folder = folder
        self.where = folder.where
        self._pool = pool
        self._reader = ShardReader(folder)
        manifest = self._read(MANIFEST, self._reader)
        found = manifest if isinstance(manifest, dict) else {}
        about: Any = found.get("about")
        values: Any = found.get("values")
        if not isinstance(about, Description) or values not in get_args(Kept):
            raise _damaged(folder.at(MANIFEST), "it does not tell of a model")
        name = found.get("id")
        self._reader.run = name if isinstance(name, str) else ""
        self._traces: dict[int, Trace] = {}
        self.about: Description = about
        self.values: Kept = values

    @cached_property
    def steps(self) -> Sequence[int]:
        """Return the numbers of the finished steps."""
        found = map(_STEP.fullmatch, self.folder.names())
        return sorted(int(match[1]) for match in found if match is not None)

    def trace(self, step: int) -> Trace:
        """Return what one step did; the last two that were read are kept: many a step is told by the one before."""
        if step not in self._traces:
            if step not in self.steps:
                raise without_step(self, step)
            self._traces = dict([*self._traces.items()][-1:])
            self._traces[step] = self._trace(step)
        return self._traces[step]

    def _trace(self, step: int) -> Trace:
        name = records_name(step)
        trace = self._read(name, self._reader.anew())  # what was read of a step is known as long as that
        if not isinstance(trace, Trace) or not trace.calls:
            raise _damaged(self.folder.at(name), "it holds no trace")
        keys = (
            *(trace.values, trace.gradients, trace.parameter_gradients),
            *(trace.buffers, trace.weights, trace.updated),
        )
        last = len(trace.store.places) if isinstance(trace.store, PlacedStore) else 0
        if not all(key < last and (key >= 0 or key in trace.summaries) for named in keys for key in named.values()):
            raise _damaged(self.folder.at(name), "it names values that it does not hold")
        trace.samples = Samples(trace)
        return trace

    def _read(self, name: str, reader: ShardReader) -> Any:
        path = self.folder.at(name)
        try:
            first, _, text = self.folder.read(name, _LARGEST).partition(b"\n")
        except OSError as error:
            msg = f"{path} cannot be read: {error.strerror or error}.\nHint: give a directory that padiff recorded to."
            raise InputError(msg) from error
        head = _head(path, first)
        if head.get("bytes") != len(text) or head.get("crc") != zlib.crc32(text):
            raise _damaged(path, "its bytes are not those that were written")
        try:
            return run_codec(reader, self._pool).decode(text, _Inline(reader.anew()), _fields(path, head))
        except Malformed as error:
            raise _damaged(path, str(error)) from error


def _head(path: str, line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line[:_LONGEST_HEAD])
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise _damaged(path, "it was not written by padiff")
    if head.get("version") != VERSION:
        msg = f"{path} is of version {head.get('version')!r} of padiff's format; this padiff reads version {VERSION}.\n"
        msg += "Hint: upgrade padiff-core, or record again with this version."
        raise InputError(msg)
    return head


def _fields(path: str, head: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the fields of the records of a file, which may be of an earlier or later version of padiff."""
    found = head.get("fields")
    named = isinstance(found, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in found.values()
    )
    if not isinstance(found, dict) or not named:
        raise _damaged(path, "it does not say what its records hold")
    return found


def _damaged(path: str, why: str) -> InputError:
    return InputError(f"{path} cannot be read: {why}.\nHint: copy it again, or record again; do not trust this one.")


def open_run(path: str | os.PathLike[str], pool: Pool | None = None) -> Run:
    """Return the run that a directory holds; raise `InputError` where it holds none that can be read.

    The path may be a URL of fsspec's. Nothing but its records is read then; arrays are when they are asked for. Records
    that say the same are held once by all runs that are given one ``pool``: the ranks of a job.
    """
    folder = folder_of(path)
    hint = "Hint: give a directory that padiff recorded to, with padiff.record() or padiff record."
    try:
        names = folder.names()
    except (FileNotFoundError, NotADirectoryError):
        named = " A model, module:attribute, is compared with `padiff diff`." if ":" in folder.where else ""
        msg = f"{folder.where} is no directory.\n{hint}{named}"
        raise InputError(msg) from None
    except OSError as error:
        msg = f"{folder.where} cannot be read: {error.strerror or error}.\n{hint}"
        raise InputError(msg) from error
    if MANIFEST not in names:
        msg = f"{folder.where} holds no recorded run: there is no {MANIFEST}.\n{hint}"
        raise InputError(msg)
    return _Directory(folder, {} if pool is None else pool)
