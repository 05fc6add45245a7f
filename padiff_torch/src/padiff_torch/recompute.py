"""Put what runs as any other code in the place of torch's activation checkpointing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import checkpoint

from padiff.adapter import Recomputation, at_once
from padiff_torch.versions import TORCH


@contextmanager
def recorded_at_once() -> Iterator[None]:
    """Let checkpoints record their functions' gradients in the forward pass."""
    places: list[tuple[Any, str, Any]] = [(checkpoint.CheckpointFunction, "apply", staticmethod(_apply))]
    if (generator := TORCH.held["checkpoint"]) is not None:
        places.append((checkpoint, generator.__name__, _around))
    with at_once(*places):
        yield


def _differentiable(values: tuple[Any, ...]) -> list[Any]:
    return [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]


_RECOMPUTATION = Recomputation(torch, _differentiable)


def _apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    return _RECOMPUTATION.reentrant(function, preserve, args, {})


def _around(*given: Any, **named: Any) -> Iterator[None]:
    """Yield once before torch calls the function itself."""
    _RECOMPUTATION.again_later(*TORCH.checkpointed(given, named))
    yield
