"""Write plain data to a folder and read it back with the core's own codec: records as JSON, arrays in a file beside.

And write runs that nobody recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from padiff.trace import Description, Kept, RunWriter, Trace, report_codec


class ArrayWriter:
    """What appends arrays to a file; each is named by where it begins."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def put(self, array: Any) -> list[int]:
        """Write one array; return where it lies."""
        raw = np.ascontiguousarray(array)
        start = -(-self.size // 64) * 64
        self._file.write(b"\0" * (start - self.size))
        self._file.write(raw.reshape(-1).view(np.uint8).data)
        self.size = start + raw.nbytes
        return [start]


class ArrayReader:
    """What shows the arrays of a file where they lie, as long as they lie within it."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def get(self, place: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return the array that begins at a place."""
        (start,) = place
        found: Any = self._data[start : start + dtype.itemsize * math.prod(shape)].view(dtype).reshape(shape)
        return found


def write_records(value: Any, folder: Path, *records: type) -> None:
    with open(folder / "arrays", "wb") as file:
        folder.joinpath("records.json").write_bytes(report_codec(*records).encode(value, ArrayWriter(file)))


def read_records(folder: Path, *records: type) -> Any:
    data = np.fromfile(folder / "arrays", dtype=np.uint8)
    return report_codec(*records).decode(folder.joinpath("records.json").read_bytes(), ArrayReader(data))


def write_run(
    folder: Path | str, about: Description, traces: Iterable[tuple[int, Trace]], values: Kept = "tensors"
) -> None:
    """Write a run to a directory: what is known of the model, and the trace of each step."""
    writer = RunWriter(folder, about, values)
    for step, trace in traces:
        writer.finish(step, trace)
