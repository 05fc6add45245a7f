"""Write a trace to a folder and read it back: its records as JSON, its arrays in one file beside.

What is read may come from a stranger: it holds no code, names no file, and every size is checked against what is there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from padiff.codec import Codec, Custom, Known, Malformed
from padiff.errors import InputError
from padiff.trace._flow import Flow
from padiff.trace._parameters import ParameterRecord
from padiff.trace._records import Call, Frame, Leaf, ModuleRecord, SettingRecord, Slot, Text, Trace
from padiff.trace._summary import Summary
from padiff.trace._values import ValueStore

__all__ = ["TRACE_RECORDS", "read_records", "read_trace", "trace_codec", "write_records", "write_trace"]

Array = NDArray[Any]

TRACE_RECORDS: tuple[type, ...] = (
    Summary,
    Call,
    Flow,
    Frame,
    Leaf,
    ModuleRecord,
    ParameterRecord,
    SettingRecord,
    Slot,
    Text,
    Trace,
)
"""The types of records that a trace is made of."""
_RECORDS, _ARRAYS = "trace.json", "trace.arrays"
_FORMAT, _VERSION = "padiff trace", 1
_ALIGNED = 64
_LARGEST = 1 << 30
"""Bytes of records, at most."""


class ArrayWriter:
    """What appends arrays to a file; each is named by where it begins."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def put(self, array: Array) -> list[int]:
        """Write one array; return where it lies."""
        raw = np.ascontiguousarray(array)
        start = -(-self.size // _ALIGNED) * _ALIGNED
        self._file.write(b"\0" * (start - self.size))
        self._file.write(raw.reshape(-1).view(np.uint8).data)
        self.size = start + raw.nbytes
        return [start]


class ArrayReader:
    """What shows the arrays of a file where they lie, as long as they lie within it."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data

    def get(self, place: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array that begins at a place."""
        start = place[0] if len(place) == 1 else None
        size = dtype.itemsize
        for extent in shape:
            size *= extent  # of Python's own integers, which do not wrap
        if type(start) is not int or start < 0 or start % dtype.itemsize or start + size > len(self._data):
            msg = f"an array of {dtype.name}{list(shape)} is said to lie at {place}, of {len(self._data)} bytes"
            raise Malformed(msg)
        found: Array = self._data[start : start + size].view(dtype).reshape(shape)
        return found


def trace_codec(*records: type) -> Codec:
    """Return what writes and reads traces, and ``records`` beside those of a trace."""
    store = Custom(ValueStore, lambda store: list(store.arrays()), ValueStore.of)
    return Codec((*TRACE_RECORDS, *records), Known(owns=False), {"store": store})


def write_trace(trace: Trace, folder: Path) -> None:
    """Write a trace to a folder, which is made if need be; a trace that it holds is replaced."""
    write_records(trace, folder)


def read_trace(folder: Path) -> Trace:
    """Return the trace that a folder holds; raise `InputError` where that is none. Its arrays stay on disk."""
    found = read_records(folder)
    if not isinstance(found, Trace) or not found.calls:
        msg = (
            f"{folder} holds no trace but a {type(found).__name__}.\nHint: give a folder that padiff wrote a trace to."
        )
        raise InputError(msg)
    return found


def write_records(value: Any, folder: Path, *records: type) -> None:
    """Write plain data, records and arrays to a folder; ``records`` are types beside those of a trace."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{_ARRAYS}.new", "wb") as file:
        arrays = ArrayWriter(file)
        text = trace_codec(*records).encode(value, arrays)
    head = {"format": _FORMAT, "version": _VERSION, "array_bytes": arrays.size}
    (folder / f"{_RECORDS}.new").write_bytes(json.dumps(head).encode() + b"\n" + text)
    for name in (_ARRAYS, _RECORDS):
        os.replace(folder / f"{name}.new", folder / name)


def read_records(folder: Path, *records: type) -> Any:
    """Return what `write_records` wrote; raise `InputError` where a file is missing, damaged or none of padiff's."""
    files = [_inside(folder, name) for name in (_RECORDS, _ARRAYS)]
    try:
        if files[0].stat().st_size > _LARGEST:
            msg = f"its records take {files[0].stat().st_size} bytes"
            raise Malformed(msg)
        first, _, text = files[0].read_bytes().partition(b"\n")
        head = _head(first)
        size = files[1].stat().st_size
        if head["array_bytes"] != size:
            msg = f"{_ARRAYS} has {size} bytes, and {_RECORDS} tells of {head['array_bytes']}"
            raise Malformed(msg)
        data = np.memmap(files[1], dtype=np.uint8, mode="r") if size else np.zeros(0, np.uint8)
        return trace_codec(*records).decode(text, ArrayReader(np.asarray(data)))
    except Malformed as error:
        msg = f"{folder} holds no trace that can be read: {error}.\nHint: record it again; do not trust this one."
        raise InputError(msg) from error


def _inside(folder: Path, name: str) -> Path:
    """Return a file of a folder; raise `InputError` where there is none, or where it leads out of the folder."""
    path = (folder / name).resolve()
    if not path.is_file():
        msg = f"{folder} holds no trace: there is no {name}.\nHint: give a folder that padiff wrote a trace to."
        raise InputError(msg)
    if path.parent != folder.resolve():
        msg = f"{folder / name} leads to {path}, outside of the folder.\nHint: do not trust this trace."
        raise InputError(msg)
    return path


def _head(line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line[:1000])
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != _FORMAT or type(head.get("array_bytes")) is not int:
        msg = f"{_RECORDS} was not written by padiff"
        raise Malformed(msg)
    if head.get("version") != _VERSION:
        msg = f"{_RECORDS} is of version {head.get('version')!r}, and this padiff reads version {_VERSION}"
        raise Malformed(msg)
    return head
