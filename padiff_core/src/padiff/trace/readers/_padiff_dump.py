"""Read what PaDiff 0.3 dumped, and what padiff does through the documented interface: report.json, params.json, arrays.

Both hold a tree of calls, each with its outputs and the gradients of its inputs. padiff's own files hold its records
beside that tree, and these are read. PaDiff says nothing of what a call was given, and writes absolute paths: arrays
are looked for below the folder, wherever that lies now.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from padiff.codec import Malformed, refuse
from padiff.paths import below, joined
from padiff.trace._model import Description
from padiff.trace._records import Call, Leaf, ModuleRecord, ParameterRecord, Trace
from padiff.trace._report_file import RECORDS, NpyFiles, ReportRecord, report_codec
from padiff.trace.readers._dumped import DumpedRun, FileStore, as_recorded, calling, damaged, frame_of, read_json
from padiff.trace.readers._places import chosen, is_there
from padiff.trace.readers._tensor_files import read_tensor

_REPORT, _PARAMETERS = "report.json", ("params.json", "weights.json", "grads.json")
_ARRAYS = "tensors"
_NUMBER = re.compile(r"\d+")
_FRAME = re.compile(r"File (.*?): (\d+) +(\S+)")


def is_padiff_dump(path: Path) -> bool:
    """Return whether a path is, or holds, a report with its arrays."""
    return is_there(path, _REPORT, _ARRAYS)


def open_padiff_dump(path: Path) -> DumpedRun:
    """Return the run that was dumped at a path; a report of several calls of the model holds as many steps."""
    reports = {step: _Report(folder) for step, folder in sorted(chosen(path, _REPORT).items())}
    first = reports[min(reports)]
    if all(report.calls == 1 for report in reports.values()):
        steps = {step: partial(report.trace, 0) for step, report in reports.items()}
    else:
        every = (partial(report.trace, index) for report in reports.values() for index in range(report.calls))
        steps = dict(enumerate(every))
    return DumpedRun(path, first.framework, "tensors", steps, first.about)


class _Report:
    """The report of one step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        content = read_json(folder / _REPORT)
        tree = content.get("tree")
        if not isinstance(tree, list) or not tree or not all(isinstance(root, dict) for root in tree):
            raise damaged(folder / _REPORT, "it holds no tree of calls")
        self.calls = len(tree)
        """How often the model was called."""
        self.framework = str(content.get("framework") or "unknown")
        self._own = RECORDS in content

    def about(self) -> Description | None:
        """Return what padiff's own records tell of the model; PaDiff tells no more than its calls."""
        return self._record(read_json(self._folder / _REPORT)).about if self._own else None

    def trace(self, index: int) -> Trace:
        """Return what one call of the model did."""
        content = read_json(self._folder / _REPORT)
        try:
            return self._recorded(content, index) if self._own else self._told(content, index)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, Malformed, RecursionError) as error:
            why = str(error) if isinstance(error, Malformed) else f"it is not as PaDiff writes it ({error!r:.80})"
            raise damaged(self._folder / _REPORT, why) from error

    def _record(self, content: Mapping[str, Any]) -> ReportRecord:
        found = report_codec().decode(json.dumps(content[RECORDS]).encode(), NpyFiles(self._folder))
        if not isinstance(found, ReportRecord) or len(found.traces) != self.calls:
            refuse("its records are not those of its tree")
        return found

    def _recorded(self, content: Mapping[str, Any], index: int) -> Trace:
        """Return what padiff's own records say."""
        found = self._record(content)
        trace, known = found.traces[index], found.about.parameters
        trace.parameters = dict(known)
        trace.store.budget = sys.maxsize  # what is mapped takes no memory
        for path, field, file in _parameters(self._folder):
            if path in known:
                named = trace.weights if field == "weights" else trace.parameter_gradients
                named[path] = trace.store.put(as_recorded(read_tensor(file), known[path].dtype))
        return trace

    def _told(self, content: Mapping[str, Any], index: int) -> Trace:
        """Return what PaDiff's tree says."""
        store = FileStore()
        trace = Trace(store)
        top = content["tree"][index]
        todo: list[tuple[dict[str, Any], Call | None]] = [(top, None)]
        ordinals: Counter[str] = Counter()
        while todo:
            node, parent = todo.pop()
            path = _below(str(top["route"]), str(node["route"]))
            call = trace.add(_call(node, parent, path, len(trace.calls), ordinals))
            for field, leaves, named in (
                ("fwd_outputs", call.outputs, trace.values),
                ("bwd_grads", call.inputs, trace.gradients),
            ):
                for place, about in enumerate(node[field]):
                    dtype, shape = _type(about)
                    token = len(trace.values) + len(trace.gradients)
                    leaves.append(Leaf(f"[{place}]", dtype, shape, token, field == "bwd_grads"))
                    named[token] = store.add(self._folder / _ARRAYS / _name(about["path"]), dtype, shape)
            todo += [(child, call) for child in reversed(node["children"])]
        for path, field, file in _parameters(self._folder):
            array = read_tensor(file)
            dtype = "bfloat16" if array.dtype.name == "uint16" else array.dtype.name  # Paddle's, as numpy sees it
            if field == "weights":
                trace.parameters[path] = ParameterRecord(path, (path,), dtype, array.shape)
            kept = trace.weights if field == "weights" else trace.parameter_gradients
            kept[path] = store.add(file, dtype, array.shape)
        return trace


def _call(node: Mapping[str, Any], parent: Call | None, path: str, index: int, ordinals: Counter[str]) -> Call:
    name, operation = str(node["name"]), node["type"] == "api"
    if operation and parent is not None:
        path = joined(parent.path, name)
    ordinal = ordinals[path]
    ordinals[path] += 1
    frames = calling(frame_of(*found) for found in _FRAME.findall(str(node.get("stack", ""))))
    return Call(index, ModuleRecord(path, name, operation=operation), ordinal, parent, True, frames)


def _parameters(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield path, what it is of it (``weights`` or ``grads``), and file, of what was dumped of parameters."""
    there = [name for name in _PARAMETERS if (folder / name).is_file()]
    for name in _PARAMETERS[:1] if _PARAMETERS[0] in there else there:
        top = read_json(folder / name)["tree"]
        todo = [top]
        while todo:
            node = todo.pop()
            todo += reversed(node["children"])
            holder = _below(str(top["route"]), str(node["route"]))
            for field in ("weights", "grads"):
                for parameter, file in (node.get(field) or {}).items():
                    if file is not None:
                        yield joined(holder, parameter), field, folder / field / _name(file)


def _below(top: str, route: str) -> str:
    """Return a path below the model, whose own route PaDiff writes in front of all."""
    return "" if route == top else below(route, top) or route


def _type(about: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape, of ``torch.float32`` and ``torch.Size([4, 16])``."""
    return str(about["dtype"]).rpartition(".")[2], tuple(map(int, _NUMBER.findall(str(about["shape"]))))


def _name(file: str) -> str:
    """Return the name of a file in its folder, which may lie elsewhere now."""
    return re.split(r"[/\\]", file)[-1]
