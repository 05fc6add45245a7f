"""Read what reprod_log saved: a dictionary of arrays in one .npy file, which is a pickle; nothing in it is executed.

What was logged under a name is taken for the output of a call of that name, in the order of logging; a dictionary in
it for a call around its own.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from padiff.paths import joined
from padiff.trace._records import Call, Leaf, ModuleRecord, Trace
from padiff.trace._values import ValueStore
from padiff.trace.readers._dumped import DumpedRun
from padiff.trace.readers._tensor_files import read_arrays

_CLASS, _GROUP = "Logged", "Group"


def is_reprod_log(path: Path) -> bool:
    """Return whether a path is a single .npy file."""
    return path.suffix == ".npy" and path.is_file()


def open_reprod_log(path: Path) -> DumpedRun:
    """Return the run whose values were logged to a file."""
    return DumpedRun(path, "reprod_log", "tensors", {0: partial(_trace, path)})


def _trace(path: Path) -> Trace:
    trace = Trace(ValueStore())
    root = Call(0, ModuleRecord("", path.stem), 0, None, True)
    trace.calls.append(root)
    _fill(trace, root, read_arrays(path))
    return trace


def _fill(trace: Trace, parent: Call, named: dict[str, Any]) -> None:
    for name, value in named.items():
        inner = joined(parent.path, name)
        kind = _GROUP if isinstance(value, dict) else _CLASS
        call = trace.add(Call(len(trace.calls), ModuleRecord(inner, kind), 0, parent, True))
        if isinstance(value, dict):
            _fill(trace, call, value)
        else:
            leaf = Leaf("", value.dtype.name, value.shape, len(trace.values))
            trace.values[leaf.token] = trace.store.put(value)
            call.outputs.append(leaf)
            trace.root.outputs.append(Leaf(inner, leaf.dtype, leaf.shape, leaf.token))
