"""Say what this process is among the ranks of a ``paddle.distributed`` job, and how its parameters are spread.

Read from fleet's topology, and from the attributes of its model-parallel layers and their parameters. Nothing is asked
of another rank.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import paddle
import paddle.distributed as dist

from padiff.adapter import Placement, Ranks, Spread, class_names

_TOPOLOGY = "paddle.distributed.fleet.base.topology"
_GROUPS = {
    "get_model_parallel_group": "tp",
    "get_sep_parallel_group": "cp",
    "get_sharding_parallel_group": "dp",
    "get_data_parallel_group": "dp",
    "get_pipe_parallel_group": "pp",
}
"""Fleet's function that returns a group -> our name of it; ranks that shard the optimizer have data of their own."""
_REPLICATE = Placement("replicate")


def trained(model: Any) -> Any:
    """Return the layer that `paddle.DataParallel`, or what fleet makes of a model, trains; the model else."""
    while isinstance(model, paddle.nn.Layer) and (isinstance(model, paddle.DataParallel) or _is_fleets(model)):
        model = model._layers
    return model


def _is_fleets(model: Any) -> bool:
    return hasattr(model, "_layers") and any(name.startswith(_WRAPPERS) for name in class_names(model))


_WRAPPERS = "paddle.distributed.fleet.meta_parallel"


def ranks_of(model: Any) -> Ranks | None:
    """Return what this process is among the ranks of its job; None where it is the only one."""
    if not dist.is_initialized() or dist.get_world_size() < 2:
        return None
    groups = dict(_groups(parallel=model.wrapper is not model.native))
    parameters = {path: dict(_spread(one.native, groups)) for path, one in model.parameters().items()}
    outputs = {path: spread for path, layer in model.natives() if (spread := _output_of(layer, groups))}
    variables = {name: os.environ.get(name, "") for name in ("PADDLE_JOB_ID", "SLURM_JOB_ID", "PADDLE_MASTER")}
    job = ", ".join(f"{name}={value}" for name, value in variables.items() if value)
    return Ranks(dist.get_rank(), dist.get_world_size(), groups, parameters, outputs, job=job)


def _groups(*, parallel: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups of more than one rank that this one is in; ``world`` where nobody says what a group is for."""
    topology = sys.modules.get(_TOPOLOGY)
    fleet = None if topology is None else getattr(topology, "_HYBRID_PARALLEL_GROUP", None)
    if fleet is None:
        yield "dp" if parallel else "world", tuple(range(dist.get_world_size()))
        return
    for function, name in _GROUPS.items():
        try:
            group = getattr(fleet, function)()
        except (AssertionError, AttributeError):  # fleet asserts that there are such groups
            continue
        if group is not None and len(group.ranks) > 1:
            yield name, tuple(map(int, group.ranks))


def _spread(native: Any, groups: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, Placement]]:
    """Yield how a parameter is spread over the ranks of each group."""
    axis = getattr(native, "split_axis", None)
    for name in groups:
        if name == "tp" and getattr(native, "is_distributed", False) and axis is not None:
            yield name, Placement("shard", int(axis))
        elif name not in ("pp", "world"):
            yield name, _REPLICATE


def _output_of(layer: Any, groups: Mapping[str, tuple[int, ...]]) -> Spread:
    """Return how the output of one of fleet's model-parallel layers is spread."""
    names = (cls.__name__ for cls in type(layer).__mro__ if cls.__module__.startswith("paddle.distributed."))
    rule = next((_OUTPUTS[name] for name in names if name in _OUTPUTS), None)
    return {} if rule is None or "tp" not in groups else {"tp": rule(layer)}


_OUTPUTS = {
    "ColumnParallelLinear": lambda layer: _REPLICATE if layer.gather_output else Placement("shard", -1),
    "ColumnSequenceParallelLinear": lambda layer: Placement("shard", -1),
    "RowParallelLinear": lambda layer: _REPLICATE,
    "RowSequenceParallelLinear": lambda layer: Placement("shard", 0),
    "VocabParallelEmbedding": lambda layer: _REPLICATE,
}
"""Bare name of one of fleet's layers -> how its output is spread."""
