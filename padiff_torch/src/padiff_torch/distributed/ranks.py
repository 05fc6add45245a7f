"""Say what this process is among the ranks of a job, and how its parameters and its modules' outputs are spread.

Read from what the frameworks know: DTensor's placements, the attributes of Megatron's parameters and layers, its
process groups, DeepSpeed's partitions. Nothing is asked of another rank.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch.distributed as dist

from padiff.adapter import Placement, Ranks, Spread, class_names
from padiff_torch.distributed.numbers import MEGATRON
from padiff_torch.distributed.pieces import FlatPart, is_range, piece_of, start_of, whole_shape
from padiff_torch.distributed.sharded import groups_of

_GROUPS = {
    "tp": "get_tensor_model_parallel_group",
    "cp": "get_context_parallel_group",
    "dp": "get_data_parallel_group",
    "pp": "get_pipeline_model_parallel_group",
    "ep": "get_expert_model_parallel_group",
}
"""Our name of a group -> Megatron's function that returns it."""
_LAUNCHERS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_PORT")
_EMBEDDING = "embedding.word_embeddings.weight"
"""What Megatron's last stage has a ``shared`` copy of, where it gives the logits too."""
_REPLICATE = Placement("replicate")


def ranks_of(model: Any) -> Ranks | None:
    """Return what this process is among the ranks of its job; None where it is the only one."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
        return None
    natives = {path: parameter.native for path, parameter in model.parameters().items()}
    wrapper = getattr(model, "wrapper", model.native)
    split = any(_is_megatrons(module) for _, module in model.natives())
    split = split or any(getattr(native, "tensor_model_parallel", False) for native in natives.values())
    data = _data_axes(model)
    groups = dict(_groups(natives.values(), None if wrapper is model.native else wrapper, split, data))
    gated, shared = _gated(model), _sharing(model)
    parameters = {
        path: dict(_spread(native, groups, data, id(native) in gated, shared.get(id(native))))
        for path, native in natives.items()
    }
    outputs = {path: spread for path, module in model.natives() if (spread := _output_of(module, groups, gated))}
    shapes = {path: _whole(native, parameters[path], groups) for path, native in natives.items()}
    shapes = {path: shape for path, shape in shapes.items() if shape != tuple(piece_of(natives[path]).shape)}
    chunks = model.own() if hasattr(model, "own") else ()
    copies = {path: _EMBEDDING for path, native in natives.items() if getattr(native, "shared", False)}
    starts = {path: start_of(native) for path, native in natives.items() if is_range(native)}
    known = parameters, outputs, shapes, chunks, copies
    return Ranks(dist.get_rank(), dist.get_world_size(), groups, *known, _job(), starts)


def _job() -> str:
    """Return what the launcher calls this job: so two that recorded into one folder are told apart."""
    variables = {name: os.environ.get(name, "") for name in _LAUNCHERS}
    return ", ".join(f"{name}={value}" for name, value in variables.items() if value not in ("", "none"))


def _whole(native: Any, spread: Spread, groups: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape that a parameter has over all ranks."""
    shape = list(whole_shape(native))
    for name, how in spread.items():
        if how.kind == "shard" and not hasattr(native, "placements"):  # a DTensor's own shape is the whole one
            shape[how.dim] *= len(groups[name])
    return tuple(shape)


def _is_megatrons(module: Any) -> bool:
    return any(name.startswith("megatron.") for name in class_names(module))


def _axes_of(mesh: Any) -> tuple[str, ...]:
    return tuple(mesh.mesh_dim_names or (f"dim{index}" for index in range(mesh.ndim)))


def _data_axes(model: Any) -> dict[str, str]:
    """Return the axes of meshes along which `fully_shard` shares data, and what they are called here."""
    found: dict[str, None] = {}
    for _, module in model.natives():
        for group in groups_of(module):
            found.update(dict.fromkeys(_axes_of(group.mesh_info.mesh)))
    return {name: "dp" if len(found) == 1 else f"dp_{name.removeprefix('dp_')}" for name in found}


def _groups(natives: Any, wrapper: Any, split: bool, data: Mapping[str, str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups of more than one rank that this one is in; ``world`` where nobody says what a group is for.

    Megatron's count where it ``split`` the model: a process may train another one beside.
    """
    state = sys.modules.get(MEGATRON) if split else None
    found: dict[str, tuple[int, ...]] = {}
    if state is not None and state.model_parallel_is_initialized():
        for name, function in _GROUPS.items():
            found[name] = tuple(dist.get_process_group_ranks(getattr(state, function)()))
    else:
        for native in natives:
            if hasattr(native, "device_mesh"):
                mesh = native.device_mesh
                for index, name in enumerate(_axes_of(mesh)):
                    found[data.get(name, name)] = tuple(dist.get_process_group_ranks(mesh.get_group(index)))
            elif isinstance(native, FlatPart):
                found.update(_groups_of(native))
        if not found:
            found["world" if wrapper is None else "dp"] = tuple(range(dist.get_world_size()))
    yield from ((name, ranks) for name, ranks in found.items() if len(ranks) > 1)


def _groups_of(part: FlatPart) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups over which FSDP1 spreads a flat parameter, that of its copies behind."""
    shards = dist.get_process_group_ranks(part.handle.process_group)
    yield "dp" if part.copies is None else "dp_shard", tuple(shards)
    if part.copies is not None:
        yield "dp_replicate", tuple(dist.get_process_group_ranks(part.copies))


def _gated(model: Any) -> set[int]:
    """Return what names the parameters of which each rank holds a part of a gate, and behind it one of what it gates.

    Megatron itself says that of its checkpoints alone.
    """
    found: set[int] = set()
    for _, module in model.natives():
        if _MLP in class_names(module) and module.config.gated_linear_unit:
            found.update(map(id, module.linear_fc1.parameters()))
    return found


def _sharing(model: Any) -> dict[int, frozenset[int]]:
    """Return what names a parameter of one of Megatron's parallel layers -> the ranks that hold shards of it.

    Experts may have a group of their own.
    """
    found: dict[int, frozenset[int]] = {}
    for _, module in model.natives():
        ranks = _ranks_of_shards(module)
        if ranks is not None:
            found.update((id(native), ranks) for native in module.parameters(recurse=False))
    return found


def _ranks_of_shards(module: Any) -> frozenset[int] | None:
    group = getattr(module, "tp_group", None)
    return None if group is None or not _is_megatrons(module) else frozenset(dist.get_process_group_ranks(group))


_MLP = "megatron.core.transformer.mlp.MLP"


def _spread(
    native: Any,
    groups: Mapping[str, tuple[int, ...]],
    data: Mapping[str, str],
    gated: bool,
    shards: frozenset[int] | None = None,
) -> Iterator[tuple[str, Placement]]:
    """Yield how a parameter is spread over the ranks of each group; ``shards`` are those that share it."""
    if hasattr(native, "placements") and hasattr(native, "device_mesh"):
        names = (data.get(name, name) for name in _axes_of(native.device_mesh))
        for name, placement in zip(names, native.placements, strict=True):
            if name in groups:
                shard = placement.is_shard()
                if shard:
                    yield name, Placement("shard", int(placement.dim))
                else:
                    yield name, Placement("partial") if placement.is_partial() else _REPLICATE
        return
    split = _split_along(groups, shards) if getattr(native, "tensor_model_parallel", False) else None
    for name in groups:
        if name == split:
            stride = 2 if gated else int(getattr(native, "partition_stride", 1))
            yield name, Placement("shard", int(native.partition_dim), stride)
        elif name in ("dp", "dp_shard") and is_range(native):
            yield name, Placement("range")
        elif name not in ("pp", "ep", "world"):
            yield name, _REPLICATE


def _split_along(groups: Mapping[str, tuple[int, ...]], shards: frozenset[int] | None) -> str | None:
    """Return the group along which the ranks lie that share a layer; None where one has all of it."""
    if shards is None:
        return "tp"
    return next((name for name in ("tp", "dp") if len(shards) > 1 and shards <= {*groups.get(name, ())}), None)


def _output_of(module: Any, groups: Mapping[str, tuple[int, ...]], gated: Collection[int] = ()) -> Spread:
    """Return how the output of one of Megatron's parallel layers is spread over its tensor-parallel group."""
    rule = next((_OUTPUTS[name] for name in class_names(module) if name in _OUTPUTS), None)
    along = _split_along(groups, _ranks_of_shards(module))
    if rule is None or along is None or along not in groups:
        return {}
    how = rule(module)
    twice = how.kind == "shard" and any(id(native) in gated for native in module.parameters())
    return {along: Placement(how.kind, how.dim, 2) if twice else how}


def _reduced(module: Any) -> Placement:
    if getattr(module, "explicit_expert_comm", False):  # whoever dispatches tokens sums
        return Placement("partial")
    if getattr(module, "sequence_parallel", False) or getattr(module, "reduce_scatter_embeddings", False):
        return Placement("shard", 0)
    return _REPLICATE


_LAYERS = "megatron.core.tensor_parallel.layers."
_OUTPUTS = {
    f"{_LAYERS}ColumnParallelLinear": lambda module: _REPLICATE if module.gather_output else Placement("shard", -1),
    f"{_LAYERS}RowParallelLinear": _reduced,
    f"{_LAYERS}VocabParallelEmbedding": _reduced,
}
"""One of Megatron's layers -> how its output is spread."""
