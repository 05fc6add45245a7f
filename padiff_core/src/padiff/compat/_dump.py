"""Write what a model's run did, and its parameters, as the documented JSON files with arrays beside them.

Every path in a file is relative to the file's own folder, so that a dump can be moved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Model, Parameter
from padiff.compat._folders import cleared
from padiff.compat._listed import Listed
from padiff.compat._run import Item, RunReport
from padiff.parameters import HeldUnit, units_of
from padiff.recording import describe
from padiff.trace import Call

__all__ = ["dump_parameters", "dump_report"]

Array = NDArray[Any]
Saver = Callable[[Array], str]


def dump_report(model: Model, name: str, report: RunReport, listed: Listed, folder: Path) -> None:
    """Write ``report.json``, and outputs and gradients below ``tensors/``."""
    save = _saver(folder, "tensors", "tensor")
    by_call: dict[int, dict[str, Item]] = {}
    for item in report.items:
        by_call.setdefault(id(item.call), {})[item.type] = item
    tree = [_node(call, by_call, save) for call in report.trace.calls if call.parent is None]
    _write(
        folder / "report.json",
        {**_head(model, name, listed), "tree": [node for nodes in tree for node in nodes], "units": _units(model)},
    )


def dump_parameters(
    model: Model,
    name: str,
    listed: Listed,
    file: Path,
    *,
    weights: bool = True,
    gradient: Callable[[Parameter], Array | None] | None = None,
) -> None:
    """Write the parameters of the listed modules: their values below ``weights/``, their gradients below ``grads/``."""
    folder = file.parent
    save_weight = _saver(folder, "weights", "weights") if weights else None
    save_grad = _saver(folder, "grads", "grads") if gradient else None
    recorded = listed.recorded()
    own: dict[str, dict[str, Parameter]] = {}
    for path, parameter in model.parameters().items():
        owner, _, last = path.rpartition(".")
        own.setdefault(owner, {})[last] = parameter
    nodes: dict[str, dict[str, Any]] = {}
    for path, module in model.modules().items():
        held = own.get(path, {}) if path in recorded else {}
        nodes[path] = {
            "name": module.class_name.rpartition(".")[2],
            "route": path,
            "repr": module.class_name,
            "available": path in recorded,
            "weights": {} if save_weight is None else {key: save_weight(p.view()) for key, p in held.items()},
            "grads": {
                key: None if p.buffer or (array := gradient(p)) is None else save_grad(array)
                for key, p in held.items()
                if gradient is not None and save_grad is not None
            },
            "children": [],
        }
        if path:
            nodes[_parent(path, nodes)]["children"].append(nodes[path])
    _write(file, {**_head(model, name, listed), "tree": nodes[""], "units": _units(model, recorded)})


def _head(model: Model, name: str, listed: Listed) -> dict[str, Any]:
    modules = model.modules()
    names = [f"{model.adapter.name}::{modules[path].class_name.rpartition('.')[2]}" for path in listed.layer_map]
    return {
        "model_name": name,
        "framework": model.adapter.name,
        "layer_map": {"route": listed.layer_map, "fullname": names},
    }


def _node(call: Call, items: Mapping[int, Mapping[str, Item]], save: Saver) -> list[dict[str, Any]]:
    """Return a recorded call with the recorded ones below it; of one that is not recorded those below alone."""
    children = [node for child in call.children for node in _node(child, items, save)]
    if id(call) not in items:
        return children
    forward, backward = items[id(call)]["forward"], items[id(call)]["backward"]
    node = {
        "name": forward.net_str,
        "route": call.path,
        "type": call.module.class_name,
        "kind": call.module.kind,
        "operation": call.module.operation,
        "training": call.training,
        "inputs": [_leaf_of(leaf) for leaf in call.inputs],
        "fwd_outputs": [{**_leaf_of(leaf), "path": save(array)} for leaf, array in forward.named()],
        "bwd_grads": [{**_leaf_of(leaf), "path": save(array)} for leaf, array in backward.named()],
        "metas": {
            "fwd_step": forward.step,
            "bwd_step": backward.step,
            "net_id": forward.net_id,
        },
        "children": children,
        "stack": [str(frame) for frame in call.frames],
    }
    return [node]


def _leaf_of(leaf: Any) -> dict[str, Any]:
    return {"leaf": leaf.path, "token": leaf.token, "shape": list(leaf.shape), "dtype": leaf.dtype}


def _units(model: Model, recorded: Collection[str] | None = None) -> list[dict[str, Any]]:
    """Return what each parameter is, so that another framework's are found to be its counterparts."""
    return [_unit(unit) for unit in units_of(describe(model)) if recorded is None or unit.module.path in recorded]


def _unit(unit: HeldUnit) -> dict[str, Any]:
    return {
        "module": unit.module.path,
        "type": unit.module.class_name,
        "unit": unit.name,
        "kind": unit.kind,
        "roles": {
            role: {
                "parameter": held.parameter.path,
                "shape": list(held.parameter.shape),
                "dtype": held.parameter.dtype,
                "buffer": held.parameter.buffer,
                "part": attrs.asdict(held.part),
            }
            for role, held in unit.roles.items()
        },
    }


def _parent(path: str, nodes: Mapping[str, Any]) -> str:
    above = path.rpartition(".")[0]
    while above not in nodes:
        above = above.rpartition(".")[0]
    return above


def _saver(folder: Path, below: str, prefix: str) -> Saver:
    """Return what writes arrays below an emptied folder, and returns their relative paths."""
    cleared(folder / below)
    count = 0

    def save(array: Array) -> str:
        nonlocal count
        path = f"{below}/{prefix}_{count}.npy"
        count += 1
        np.save(folder / path, np.asarray(array), allow_pickle=False)
        return path

    return save


def _write(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps({**content, "file_path": file.name}, indent=2), encoding="utf-8")
