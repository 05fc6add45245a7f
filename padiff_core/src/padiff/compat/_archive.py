"""Write a dump and read it back: a JSON file with the documented tree, behind it padiff's records, arrays beside it.

Every path in a file is relative to the file's own folder, so that a dump can be moved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np

from padiff.codec import Malformed
from padiff.compat._folders import cleared
from padiff.errors import InputError
from padiff.numerics import Array, numpy_dtype
from padiff.parameters import Held, HeldUnit
from padiff.trace import RECORDS, NpyFiles, ReportRecord, report_codec

_MADE_BY = {"report.json": "dump_report", "params.json": "dump_params", "weights.json": "dump_weights"}


@attrs.frozen
class DumpedParameters:
    """A model's parameters: the files of their values and gradients, by path."""

    name: str
    layer_map: list[str]
    units: list[HeldUnit]
    weights: dict[str, str]
    grads: dict[str, str | None]


_TYPES = (DumpedParameters, HeldUnit, Held)
Dumped = TypeVar("Dumped", ReportRecord, DumpedParameters)


class Arrays(NpyFiles):
    """The arrays of a dump, to be written too."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._places: dict[str, list[str]] = {}
        self._known: dict[int, tuple[Array, str]] = {}

    def begin(self, below: str) -> None:
        """Empty a folder for arrays."""
        cleared(self.folder / below)
        self._places[below] = []

    def save(self, array: Array, below: str, prefix: str) -> str:
        """Write an array; return its place."""
        places = self._places[below]
        places.append(f"{below}/{prefix}_{len(places)}.npy")
        np.save(self.folder / places[-1], np.asarray(array), allow_pickle=False)
        return places[-1]

    def put(self, array: Array) -> list[str]:
        """Write a value of a run, once; return its place."""
        if id(array) not in self._known:
            self._known[id(array)] = array, self.save(array, "tensors", "tensor")
        return [self._known[id(array)][1]]

    def value(self, place: str, dtype: str) -> Array:
        """Return a parameter's value or gradient; raise `InputError` where it cannot be read."""
        try:
            return self.load(place, numpy_dtype(dtype))
        except Malformed as error:
            raise InputError(_unreadable(self.folder, error)) from error


def write(file: Path, documented: Mapping[str, Any], dumped: Any, arrays: Arrays) -> None:
    """Write a dump's JSON file: what is documented, for people, and the records, for `read`."""
    head = json.dumps({**documented, "file_path": file.name}, indent=2).removesuffix("\n}")
    records = report_codec(*_TYPES).encode(dumped, arrays).decode()
    file.write_text(f'{head},\n  "{RECORDS}": {records}\n}}', encoding="utf-8")


def read(cls: type[Dumped], folder: Path, *files: str) -> Dumped:
    """Read the first of several files that is there; raises `InputError` where none is, or it is damaged."""
    file = next((folder / name for name in files if (folder / name).is_file()), None)
    if file is None:
        made = _MADE_BY.get(files[0], "dump_grads")
        msg = f"{folder} has no {files[0]}.\nHint: {made}(path), or try_dump(), writes it."
        raise InputError(msg)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        records = content.get(RECORDS) if isinstance(content, dict) else None
        if records is None:
            msg = f"{file} was not written by this padiff.\nHint: dump the model again; older dumps are not read."
            raise InputError(msg)
        found = report_codec(*_TYPES).decode(json.dumps(records).encode(), Arrays(folder))
    except (ValueError, Malformed) as error:
        raise InputError(_unreadable(file, error)) from error
    if not isinstance(found, cls):
        raise InputError(_unreadable(file, f"it holds a {type(found).__name__}"))
    return found


def _unreadable(where: Path, why: object) -> str:
    return f"{where} is damaged: {why}.\nHint: dump the model again; do not trust this one."
