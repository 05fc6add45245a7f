"""Read what msprobe dumped: dump.json, construct.json and stack.json, with the tensors beside them or statistics alone.

A dump is a folder with these files, or one that holds ``step0``, ``step1``, and in each ``rank0`` or ``proc123``. Of
several ranks one is named behind the folder: ``dump/rank1``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import attrs

from padiff.trace._records import Call, Frame, Key, Leaf, ModuleRecord, ParameterRecord, Trace
from padiff.trace._run import Kept
from padiff.trace._summary import Summary
from padiff.trace.readers._dumped import DumpedRun, FileStore, calling, damaged, frame_of, read_json
from padiff.trace.readers._places import chosen, is_there

_DUMP, _TENSORS = "dump.json", "dump_tensor_data"
_MODULE = re.compile(r"(?:Module|Cell)\.(.+)\.([^.]+)\.(forward|backward)\.(\d+)")
_GRADIENT = re.compile(r"(?:Module|Cell)\.(.+)\.([^.]+)\.parameters_grad(?:\.\d+)?")
_FUNCTION = re.compile(r"(.+)\.(\d+)\.forward")
_FRAME = re.compile(r"File (.*?), line (\d+), in ([^,\n]*)")
_KEPT: Mapping[str, Kept] = {"tensor": "tensors", "statistics": "summary", "structure": "structure"}
_FRAMEWORKS = {"pytorch": "torch", "mindspore": "mindspore"}
_ROOT = "DefaultModel"
_FIGURES, _CHECKSUM = ("Mean", "Norm", "Min", "Max"), "md5"
"""Names of what an entry tells of a tensor; the checksum is of CRC-32, or an exclusive or, under MD5's name."""


def is_msprobe(path: Path) -> bool:
    """Return whether a path is, or holds, a dump of msprobe."""
    return is_there(path, _DUMP)


def open_msprobe(path: Path) -> DumpedRun:
    """Return the run that msprobe dumped at a path: a folder with dump.json, or with steps and ranks."""
    folders = chosen(path, _DUMP)
    head = read_json(folders[min(folders)] / _DUMP)
    framework = _FRAMEWORKS.get(str(head.get("framework")), str(head.get("framework") or "unknown"))
    kept = _KEPT.get(str(head.get("task")), "summary")
    if kept == "summary" and not _tells(head.get("data"), _FIGURES) and _tells(head.get("data"), {_CHECKSUM}):
        kept = "checksum"
    return DumpedRun(path, framework, kept, {step: partial(_trace, folder) for step, folder in folders.items()})


def _trace(folder: Path) -> Trace:
    return _Dump(folder).trace


class _Dump:
    """One step of one rank."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = FileStore()
        self._tokens = 0
        data = read_json(folder / _DUMP).get("data")
        if not isinstance(data, dict):
            raise damaged(folder / _DUMP, "it has no data")
        self._data: dict[str, Any] = data
        self.trace = Trace(self._store)
        try:
            self._fill()
        except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
            raise damaged(folder / _DUMP, f"it is not as msprobe writes it ({type(error).__name__})") from error

    def _fill(self) -> None:
        stacks, children = self._stacks(), self._children()
        tops = [name for name in children.get(None, ()) if _MODULE.fullmatch(name)]
        root = Call(0, ModuleRecord("", _ROOT), 0, None, True)
        self.trace.calls.append(root)
        todo = [(name, root) for name in reversed(children.get(None, ()))]
        while todo:
            name, parent = todo.pop()
            call = self._call(name, parent, stacks.get(name, ()))
            todo += [(inner, call) for inner in reversed(children.get(name, ()))]
        outermost = [call for call in root.children if not call.module.operation]
        if len(outermost) == 1 and tops:
            root.inputs, root.outputs = outermost[0].inputs, outermost[0].outputs
        else:  # what the code around them makes of it was not dumped: all that they give is what the model gives
            root.outputs = [self._given(call, leaf) for call in outermost for leaf in call.outputs]
        for name, entry in self._data.items():
            self._gradients(name, entry)

    def _given(self, call: Call, leaf: Leaf) -> Leaf:
        """Return what a call gives as an output of the model: the same value, whose gradient comes from elsewhere."""
        token, self._tokens = self._tokens, self._tokens + 1
        if leaf.token in self.trace.values:
            self.trace.values[token] = self.trace.values[leaf.token]
        return attrs.evolve(leaf, path=f"{call.path}{leaf.path}", token=token)

    def _children(self) -> dict[str | None, list[str]]:
        """Return the forward calls inside of each, in execution order; None's are the outermost."""
        around = read_json(self._folder / "construct.json") if (self._folder / "construct.json").is_file() else {}
        names = dict.fromkeys([*around, *self._data])
        forward = [name for name in names if _pass(name) == "forward"]
        known, found = set(forward), dict[str | None, list[str]]()
        for name in forward:
            above = around.get(name)
            above = above[0] if isinstance(above, list) and above else above
            found.setdefault(above if isinstance(above, str) and above in known else None, []).append(name)
        return found

    def _call(self, name: str, parent: Call, frames: tuple[Frame, ...]) -> Call:
        module = _MODULE.fullmatch(name)
        if module is not None:
            record, ordinal = ModuleRecord(module[1], module[2]), int(module[4])
        else:
            function = _FUNCTION.fullmatch(name)
            assert function is not None
            record = ModuleRecord(function[1], function[1].rpartition(".")[2], operation=True)
            ordinal = int(function[2])
        call = self.trace.add(Call(len(self.trace.calls), record, ordinal, parent, True, frames))
        entry = self._data.get(name) or {}
        given = entry.get("input_args", entry.get("input"))
        call.inputs = [*self._leaves(given, ""), *self._leaves(entry.get("input_kwargs"), "")]
        call.outputs = list(self._leaves(entry.get("output"), ""))
        for parameter, about in (entry.get("parameters") or {}).items():
            self._parameter(f"{call.path}.{parameter}", about)
        return call

    def _leaves(self, value: Any, path: str) -> Iterator[Leaf]:
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._leaves(item, f"{path}[{index}]")
        elif _tensor(value) is not None:
            leaf = Leaf(path, *_type(value), self._tokens, bool(value.get("requires_grad")))
            self._tokens += 1
            self._keep(self.trace.values, leaf.token, value)
            yield leaf
        elif isinstance(value, dict) and "type" not in value:
            for key, item in value.items():
                yield from self._leaves(item, f"{path}[{key!r}]")

    def _parameter(self, path: str, told: Any) -> None:
        about = _tensor(told)
        if about is not None and path not in self.trace.parameters:
            trainable = bool(about.get("requires_grad", True))
            self.trace.parameters[path] = ParameterRecord(path, (path,), *_type(about), trainable=trainable)
            self._keep(self.trace.weights, path, about)

    def _gradients(self, name: str, entry: Any) -> None:
        """Keep the gradients that an entry tells of: msprobe's inputs of a backward are those of the call's outputs."""
        parameters, module = _GRADIENT.fullmatch(name), _MODULE.fullmatch(name)
        if parameters is not None:
            for parameter, told in entry.items():
                if (about := _tensor(told)) is not None:
                    self._keep(self.trace.parameter_gradients, f"{parameters[1]}.{parameter}", about)
        elif module is not None and module[3] == "backward":
            call = self._by_key.get((module[1], int(module[4])))
            for leaves, given in () if call is None else ((call.outputs, "input"), (call.inputs, "output")):
                listed = entry.get(given) or []
                for leaf, told in zip(leaves, listed if isinstance(listed, list) else [listed], strict=False):
                    if (about := _tensor(told)) is not None and _type(about)[1] == leaf.shape:
                        self._keep(self.trace.gradients, leaf.token, about)

    @cached_property
    def _by_key(self) -> dict[Key, Call]:
        return {call.key: call for call in reversed(self.trace.calls) if not call.module.operation}

    def _keep(self, named: dict[Any, int], name: Any, about: Mapping[str, Any]) -> None:
        """Keep a value under a name: a file where there is one, else what the records say of it, if anything."""
        given = about.get("data_name")
        file = self._folder / _TENSORS / given if isinstance(given, str) and Path(given).name == given else None
        mean, norm, low, high = figures = [_number(about.get(key)) for key in _FIGURES]
        told = about.get(_CHECKSUM)
        # What is there twice, as in a batch of equal rows, an exclusive or makes nothing of.
        checksum = told if isinstance(told, str) and told.removeprefix("0x").strip("0") else None
        if file is not None and file.is_file():
            named[name] = self._store.add(file, *_type(about))
        elif checksum is not None or any(figure is not None for figure in figures):
            named[name] = self.trace.summarized(Summary(*_type(about), mean, norm, low, high, checksum=checksum))

    def _stacks(self) -> dict[str, tuple[Frame, ...]]:
        file = self._folder / "stack.json"
        found: dict[str, tuple[Frame, ...]] = {}
        for name, told in (read_json(file) if file.is_file() else {}).items():
            names, lines = told if isinstance(told, list) and len(told) == 2 and told[0] != [] else ([name], told)
            if not isinstance(names, list) or not isinstance(lines, list):
                names, lines = [name], told
            frames = calling(frame for line in lines if (frame := _frame(line)) is not None)
            found.update((one, frames) for one in names if isinstance(one, str))
        return found


def _pass(name: str) -> str | None:
    module = _MODULE.fullmatch(name)
    if module is not None:
        return module[3]
    return "forward" if _FUNCTION.fullmatch(name) else None


def _frame(line: Any) -> Frame | None:
    found = _FRAME.match(line) if isinstance(line, str) else None
    return None if found is None else frame_of(*found.groups())


def _tensor(told: Any) -> Mapping[str, Any] | None:
    """Return what is told of a tensor, alone or as the first of a list; None where that is none."""
    value = told[0] if isinstance(told, list) and told else told
    whole = isinstance(value, dict) and isinstance(value.get("shape"), list) and isinstance(value.get("dtype"), str)
    return value if whole else None


def _type(value: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    return value["dtype"].rpartition(".")[2].lower(), tuple(int(extent) for extent in value["shape"])


def _tells(value: Any, names: Collection[str]) -> bool:
    """Return whether what an object of JSON holds, however deep, has one of some names, and a value under it."""
    if isinstance(value, dict):
        found = any(value.get(name) is not None for name in names)
        return found or any(_tells(inner, names) for inner in value.values())
    return isinstance(value, list) and any(_tells(inner, names) for inner in value)


def _number(value: Any) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan
