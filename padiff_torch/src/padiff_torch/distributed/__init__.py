"""Know what trains a torch module on several ranks: DeepSpeed's engine, torch's own wrappers, Megatron's layers."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from padiff.adapter import class_names
from padiff_torch.distributed.pieces import is_dtensor

if TYPE_CHECKING:
    from padiff.adapter import Adapter
    from padiff_torch.distributed.wrappers import WrappedModel

__all__ = ["trained"]

_WRAPPERS = {
    "deepspeed.runtime.engine.DeepSpeedEngine": "engine:EngineModel",
    "torch.nn.parallel.distributed.DistributedDataParallel": "wrappers:WrappedModel",
    "megatron.core.distributed.distributed_data_parallel.DistributedDataParallel": "wrappers:WrappedModel",
    "megatron.core.transformer.module.Float16Module": "wrappers:WrappedModel",
}
"""Qualified name of a class of wrappers, which hold the model as ``module`` -> what wraps these for padiff."""


_FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"


def trained(model: Any, adapter: Adapter) -> WrappedModel | None:
    """Return a model that something trains on several ranks, wrapped; None for an ordinary one."""
    if isinstance(model, list | tuple):
        chunks = [_unwrapped(chunk) for chunk in model]
        found: WrappedModel = _class("wrappers:ChunkedModel")(model, chunks, adapter)
        return found
    known = _known(model)
    if known is None and _flat(model):
        known = "flat:FlatModel"
    if known is None and not (isinstance(model, torch.nn.Module) and any(map(is_dtensor, model.parameters()))):
        return None
    found = _class(known or "sharded:ShardedModel")(model, _unwrapped(model), adapter)
    return found


def _flat(model: Any) -> bool:
    """Return whether FSDP1, which is not imported before it is used, made parameters parts of flat ones."""
    return _FSDP in sys.modules and bool(_class("flat:is_flat")(model))


def _known(model: Any) -> str | None:
    return next((_WRAPPERS[name] for name in class_names(model) if name in _WRAPPERS), None)


def _unwrapped(model: Any) -> Any:
    """Return the module that a wrapper trains, of several the innermost."""
    while _known(model) is not None:
        model = model.module
    return model


def _class(home: str) -> Any:
    home, _, name = home.partition(":")
    return getattr(importlib.import_module(f"padiff_torch.distributed.{home}"), name)
