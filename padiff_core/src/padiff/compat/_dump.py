"""Dump what a model's runs did, and its parameters, as documented: a tree in JSON, arrays beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from padiff.adapter import Model, Parameter
from padiff.compat._archive import Arrays, DumpedParameters, write
from padiff.compat._module_lists import ModuleLists
from padiff.compat._run import RunReport
from padiff.compat._struct import parent_of
from padiff.numerics import Array
from padiff.parameters import units_of
from padiff.paths import parent
from padiff.recording import describe
from padiff.trace import Call, Leaf, ReportRecord, Trace


def dump_report(model: Model, name: str, report: RunReport, listed: ModuleLists, folder: Path) -> None:
    """Write ``report.json``, and outputs and gradients below ``tensors/``."""
    arrays = Arrays(folder)
    arrays.begin("tensors")
    traces = report.traces()
    steps = itertools.count()
    last = 2 * sum(len(trace.calls) for trace in traces) - 1

    def node(call: Call, trace: Trace) -> dict[str, Any]:
        step = next(steps)
        return {
            "name": call.module.class_name.rpartition(".")[2],
            "route": call.path,
            "type": call.module.class_name,
            "fwd_outputs": list(_shown(call.outputs, trace.value, arrays)),
            "bwd_grads": list(_shown(call.inputs, trace.gradient, arrays)),
            "metas": {"fwd_step": step, "bwd_step": last - step, "net_id": report.number(call)},
            "children": [node(child, trace) for child in call.children],
            "stack": [str(frame) for frame in call.frames],
        }

    tree = [node(trace.root, trace) for trace in traces]
    run = ReportRecord(name, listed.layer_map, describe(model), traces)
    write(folder / "report.json", {**_head(model, name, listed), "tree": tree}, run, arrays)


def _shown(leaves: list[Leaf], read: Callable[[Leaf], Array | None], arrays: Arrays) -> Iterator[dict[str, Any]]:
    for leaf in leaves:
        array = read(leaf)
        if array is not None:
            yield {"leaf": leaf.path, "shape": list(leaf.shape), "dtype": leaf.dtype, "path": arrays.put(array)[0]}


def dump_parameters(
    model: Model,
    name: str,
    listed: ModuleLists,
    file: Path,
    *,
    weights: bool = True,
    gradient: Callable[[Parameter], Array | None] | None = None,
) -> None:
    """Write the parameters of the listed modules: their values below ``weights/``, their gradients below ``grads/``."""
    arrays, recorded = Arrays(file.parent), listed.recorded()
    held = {path: p for path, p in model.parameters().items() if parent(path) in recorded}
    values: dict[str, str] = {}
    grads: dict[str, str | None] = {}
    if weights:
        arrays.begin("weights")
        values = {path: arrays.save(p.view(), "weights", "weights") for path, p in held.items()}
    if gradient is not None:
        arrays.begin("grads")
        for path, p in held.items():
            array = None if p.buffer else gradient(p)
            grads[path] = None if array is None else arrays.save(array, "grads", "grads")
    units = [unit for unit in units_of(describe(model)) if unit.module.path in recorded]
    tree = _tree(model, recorded, {"weights": values, "grads": grads})
    dumped = DumpedParameters(name, listed.layer_map, units, values, grads)
    write(file, {**_head(model, name, listed), "tree": tree}, dumped, arrays)


def _tree(model: Model, recorded: Collection[str], files: Mapping[str, Mapping[str, str | None]]) -> dict[str, Any]:
    """Return the modules as they are nested, each with the files of its own parameters."""
    nodes: dict[str, dict[str, Any]] = {}
    for path, module in model.modules().items():
        nodes[path] = {
            "name": module.class_name.rpartition(".")[2],
            "route": path,
            "repr": module.class_name,
            "available": path in recorded,
            **{what: {} for what in files},
            "children": [],
        }
        if path:
            nodes[parent_of(path, nodes)]["children"].append(nodes[path])
    for what, named in files.items():
        for path, file in named.items():
            owner, _, last = path.rpartition(".")
            nodes[owner][what][last] = file
    return nodes[""]


def _head(model: Model, name: str, listed: ModuleLists) -> dict[str, Any]:
    modules = model.modules()
    names = [f"{model.adapter.name}::{modules[path].class_name.rpartition('.')[2]}" for path in listed.layer_map]
    return {
        "model_name": name,
        "framework": model.adapter.name,
        "layer_map": {"route": listed.layer_map, "fullname": names},
    }
