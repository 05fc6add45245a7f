"""Know what trains a torch module on several ranks: DeepSpeed's engine, torch's own wrappers, Megatron's layers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from padiff.adapter import Adapter
    from padiff_torch.distributed.wrappers import WrappedModel

__all__ = ["trained"]

_WRAPPERS = {
    "deepspeed.runtime.engine.DeepSpeedEngine": "engine:EngineModel",
    "torch.nn.parallel.distributed.DistributedDataParallel": "wrappers:WrappedModel",
}
"""Qualified name of a class of wrappers, which hold the model as ``module`` -> what wraps these for padiff."""


def trained(model: Any, adapter: Adapter) -> WrappedModel | None:
    """Return a model that something trains on several ranks, wrapped; None for an ordinary one."""
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(model).__mro__)
    known = next((_WRAPPERS[name] for name in names if name in _WRAPPERS), None)
    if known is None and not (isinstance(model, torch.nn.Module) and any(map(_is_sharded, model.parameters()))):
        return None
    home, _, name = (known or "wrappers:ShardedModel").partition(":")
    wrap = getattr(importlib.import_module(f"padiff_torch.distributed.{home}"), name)
    found: WrappedModel = wrap(model, model if known is None else model.module, adapter)
    return found


def _is_sharded(parameter: Any) -> bool:
    """Return whether a parameter is a DTensor, as `fully_shard` leaves it."""
    return hasattr(parameter, "placements") and hasattr(parameter, "to_local")
