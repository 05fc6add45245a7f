"""Read a dump back as a trace and units, as if the run were still in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.errors import InputError
from padiff.kinds import Part
from padiff.numerics import numpy_dtype, sample
from padiff.parameters import Held, HeldUnit
from padiff.trace import Call, Frame, Leaf, ModuleRecord, ParameterRecord, Trace, ValueStore

__all__ = ["StoredParameters", "StoredRun", "read_parameters", "read_run"]

Array = NDArray[Any]


@attrs.define(eq=False)
class StoredRun:
    """Hold a run that was dumped: a trace for each time that the model was called."""

    name: str
    framework: str
    layer_map: list[str]
    traces: list[Trace]
    units: list[HeldUnit]


@attrs.define(eq=False)
class StoredParameters:
    """Hold parameters that were dumped: the files of their values and gradients, by path."""

    name: str
    folder: Path
    layer_map: list[str]
    units: list[HeldUnit]
    weights: Mapping[str, str]
    grads: Mapping[str, str | None]

    def read(self, file: str, dtype: str) -> Array:
        """Return an array of the dump."""
        return _array(self.folder, file, dtype)


def read_run(folder: Path) -> StoredRun:
    """Read ``report.json``; raises `InputError` where there is none, or it is damaged."""
    content = _content(folder, "report.json")
    traces = [_trace(root, folder) for root in content["tree"]]
    units = list(_units(content["units"]))
    return StoredRun(content["model_name"], content["framework"], content["layer_map"]["route"], traces, units)


def read_parameters(folder: Path, *files: str) -> StoredParameters:
    """Read the first of several files that is there; raises `InputError` where none is."""
    name = next((file for file in files if (folder / file).is_file()), files[0])
    content = _content(folder, name)
    weights: dict[str, str] = {}
    grads: dict[str, str | None] = {}

    def gather(node: Mapping[str, Any]) -> None:
        below = f"{node['route']}." if node["route"] else ""
        weights.update({below + key: file for key, file in node["weights"].items()})
        grads.update({below + key: file for key, file in node["grads"].items()})
        for child in node["children"]:
            gather(child)

    gather(content["tree"])
    return StoredParameters(
        content["model_name"],
        folder,
        content["layer_map"]["route"],
        list(_units(content["units"])),
        weights,
        grads,
    )


def _content(folder: Path, name: str) -> dict[str, Any]:
    file = folder / name
    if not file.is_file():
        made = {"report.json": "dump_report", "params.json": "dump_params", "weights.json": "dump_weights"}
        msg = f"{folder} has no {name}.\nHint: {made.get(name, 'dump_grads')}(path), or try_dump(), writes it."
        raise InputError(msg)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        msg = f"{file} is damaged: {error}.\nHint: dump the model again."
        raise InputError(msg) from error
    if not isinstance(content, dict) or "units" not in content:
        msg = f"{file} was not written by this padiff.\nHint: PaDiff's own dumps have to be made again."
        raise InputError(msg)
    return content


def _trace(root: Mapping[str, Any], folder: Path) -> Trace:
    trace = Trace(ValueStore())
    ordinals: dict[str, int] = {}

    def value(leaf: Mapping[str, Any], into: dict[int, int]) -> None:
        if leaf["token"] not in into:
            array = _array(folder, leaf["path"], leaf["dtype"])
            into[leaf["token"]] = trace.store.put(array)
            if into is trace.values:
                trace.samples[leaf["token"]] = sample(array)

    def add(node: Mapping[str, Any], parent: Call | None) -> None:
        path = node["route"]
        module = ModuleRecord(path, node["type"], node["kind"], operation=node["operation"])
        ordinal = ordinals.get(path, 0)
        ordinals[path] = ordinal + 1
        frames = tuple(map(_frame, node["stack"]))
        call = Call(len(trace.calls), module, ordinal, parent, node["training"], frames)
        call.inputs, call.outputs = _leaves(node["inputs"]), _leaves(node["fwd_outputs"])
        trace.calls.append(call)
        if parent is not None:
            parent.children.append(call)
        for leaf in node["fwd_outputs"]:
            value(leaf, trace.values)
        for leaf in node["bwd_grads"]:
            value(leaf, trace.gradients)
        for child in node["children"]:
            add(child, call)

    add(root, None)
    return trace


def _leaves(nodes: list[Mapping[str, Any]]) -> list[Leaf]:
    return [Leaf(n["leaf"], n["dtype"], tuple(n["shape"]), n["token"], differentiable=True) for n in nodes]


def _frame(text: str) -> Frame:
    where, _, function = text.rpartition(" in ")
    file, _, line = where.rpartition(":")
    return Frame(file, int(line), function, 0, library=False)


def _units(nodes: list[Mapping[str, Any]]) -> Iterator[HeldUnit]:
    for node in nodes:
        module = ModuleRecord(node["module"], node["type"])
        roles = {}
        for role, held in node["roles"].items():
            path, shape = held["parameter"], tuple(held["shape"])
            parameter = ParameterRecord(path, (path,), held["dtype"], shape, held["buffer"], not held["buffer"])
            part = Part(**{key: _tuples(value) for key, value in held["part"].items()})
            roles[role] = Held(parameter, part, part.read(np.broadcast_to(np.empty(()), shape)).shape)
        yield HeldUnit(module, node["unit"], node["kind"], roles)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _array(folder: Path, file: str, dtype: str) -> Array:
    """Read one array. The path may not leave the folder, and nothing in the file is executed."""
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        msg = f"a dump in {folder} names {file}, which lies outside of it.\nHint: do not trust this dump."
        raise InputError(msg)
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        msg = f"{path} is missing or damaged: {error}.\nHint: dump the model again."
        raise InputError(msg) from error
    # .npy forgets the dtypes of ml_dtypes: their bytes come back as void.
    return array.view(numpy_dtype(dtype)) if array.dtype.kind == "V" else array
