"""Hold a run that another tool dumped: a trace for each step, made when it is asked for, its values left in files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes

from padiff.codec import DTYPES
from padiff.errors import InputError
from padiff.numerics import Array
from padiff.trace._directory import Samples
from padiff.trace._model import Description, ModuleDescription
from padiff.trace._records import Frame, Trace
from padiff.trace._run import Kept, without_step
from padiff.trace._values import MadeStore
from padiff.trace.readers._kinds import Kinds
from padiff.trace.readers._tensor_files import read_tensor

_LARGEST = 1 << 30
"""Bytes of a file of records, at most."""
_FRAMEWORK = re.compile(r"[/\\](site|dist)-packages[/\\](torch|paddle|mindspore|msprobe)[/\\]|[/\\]padiff[/\\]")
"""Where the files of frameworks, and of what dumps, lie."""


class DumpedRun:
    """A run of which each step is read when it is asked for."""

    def __init__(
        self,
        path: Path,
        framework: str,
        values: Kept,
        steps: Mapping[int, Callable[[], Trace]],
        about: Callable[[], Description | None] = lambda: None,
    ) -> None:
        self.where = str(path)
        self.values: Kept = values
        self._framework = framework
        self._steps = steps
        self._told = about

    @property
    def steps(self) -> Sequence[int]:
        """Return the numbers of the steps."""
        return sorted(self._steps)

    @cached_property
    def about(self) -> Description:
        """Return what the dump tells of the model, or else its first step."""
        told = self._told()
        if told is not None:
            return told
        trace = self.trace(self.steps[0])
        first = {call.path: call for call in reversed(trace.calls) if not call.module.operation}
        modules = {
            path: ModuleDescription(call.module, {}, self._kinds.of(call, trace.parameters)[1])
            for path, call in reversed(first.items())
        }
        return Description(
            self._framework,
            trace.root.module.class_name,
            frozenset(),
            "",
            True,
            {},
            modules,
            trace.parameters,
        )

    def trace(self, step: int) -> Trace:
        """Return what one step did; raises `InputError` where it is not there, or damaged."""
        if step not in self._steps:
            raise without_step(self, step)
        trace = self._steps[step]()
        trace.samples = Samples(trace)
        for call in trace.calls:
            if call.module.kind is None:
                kind, _ = self._kinds.of(call, trace.parameters)
                call.module = attrs.evolve(call.module, kind=kind)
        return trace

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds(self._framework)


class FileStore(MadeStore):
    """A store whose values are files, each read when it is asked for."""

    def add(self, file: Path, dtype: str, shape: tuple[int, ...]) -> int:
        """Keep the value that a file holds, which had a dtype and a shape; return its key."""
        return self.promise(partial(_recorded, file, dtype, shape))


def _recorded(file: Path, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return the array of a file; raise `InputError` where it cannot be read, or is another."""
    array = as_recorded(read_tensor(file), dtype)
    if array.shape != shape:
        raise damaged(file, f"it holds {array.dtype.name}{list(array.shape)}, and {dtype}{list(shape)} was recorded")
    return array


def frame_of(file: str, line: str, function: str) -> Frame:
    """Return a frame of which a dump tells no more."""
    return Frame(file, int(line), function.strip(), int(line), bool(_FRAMEWORK.search(file)))


def calling(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Return the calling frames without those of frameworks and tools, which only pass a call on."""
    found = tuple(frames)
    return tuple(frame for frame in found if not frame.library) or found


def as_recorded(array: Array, name: str) -> Array:
    """Return an array in the dtype that it had where numpy has none: files keep its bytes alone, or widen it."""
    dtype = DTYPES.get(name)
    if dtype is None or array.dtype == dtype or not hasattr(ml_dtypes, name):
        return array
    if array.dtype.kind in "Vu" and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    return array.astype(dtype) if array.dtype.kind == "f" else array


def read_json(file: Path) -> dict[str, Any]:
    """Return the object that a file of JSON holds; raise `InputError` where it does not."""
    try:
        if file.is_symlink() or file.stat().st_size > _LARGEST:
            raise damaged(file, "it is a link, or too large")
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise damaged(file, error.strerror or "it is not there") from error
    except (ValueError, RecursionError) as error:
        raise damaged(file, "it is no JSON") from error
    if not isinstance(found, dict):
        raise damaged(file, "it holds no names")
    return found


def damaged(file: Path, why: str) -> InputError:
    """Return the error for a file that cannot be read."""
    return InputError(f"{file} cannot be read: {why}.\nHint: dump it again, or copy it again.")
