"""Hold what a documented report keeps behind its tree, and read the arrays that lie beside it in files of numpy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np

from padiff.codec import Codec, Custom, Known, Malformed, refuse
from padiff.kinds import Part, Unit
from padiff.numerics import Array
from padiff.trace._model import Description, ModuleDescription
from padiff.trace._records import TRACE_RECORDS, Trace
from padiff.trace._values import ValueStore

RECORDS = "records"
"""The name under which a report holds them."""


@attrs.frozen
class ReportRecord:
    """A model's recorded runs: a trace for each time that it was called."""

    name: str
    layer_map: list[str]
    about: Description
    traces: list[Trace]


class NpyFiles:
    """Arrays below a folder, each in a file of its own; its place is the file's path below the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, place: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return the array at a place; raise `Malformed` where that is none."""
        array = self.load("/".join(place), dtype)
        if array.dtype != dtype or array.shape != shape:
            refuse(f"{place[0]} holds {array.dtype}{list(array.shape)} instead of {dtype}{list(shape)}")
        return array

    def load(self, place: str, dtype: np.dtype[Any]) -> Array:
        """Read one file. Its path may not leave the folder, and nothing in it is executed."""
        path = (self.folder / place).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            refuse(f"it names {place}, which lies outside of it")
        try:
            array: Array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError) as error:
            msg = f"{path} is missing or damaged: {error}"
            raise Malformed(msg) from error
        # .npy forgets the dtypes of ml_dtypes: their bytes come back as void.
        return array.view(dtype) if array.dtype.kind == "V" else array


def report_codec(*records: type) -> Codec:
    """Return what writes and reads the records of reports, and ``records`` beside them."""
    own = (*TRACE_RECORDS, ReportRecord, Description, ModuleDescription, Part, Unit)
    store = Custom(ValueStore, lambda store: list(store.arrays()), ValueStore.of)
    return Codec((*own, *records), Known(owns=False), {"store": store})
