"""Put a model's tensors back as they were, and other storages under them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from padiff.adapter import LiftError, switched
from padiff_torch.tensor import native_dtype


def remembered(native: Any) -> Callable[[], None]:
    """Return what puts gradient and requires_grad of a parameter or buffer back."""
    leaf, requires_grad = native.is_leaf, native.requires_grad
    grad = native.grad if leaf else None

    def restore() -> None:
        if leaf and not native.is_leaf:
            native.detach_()  # written to in place, with gradients
        if native.is_leaf:
            if native.requires_grad != requires_grad:  # of an inference tensor it must not even be set as it is
                native.requires_grad = requires_grad
            native.grad = grad

    return restore


def kept(native: Any) -> Callable[[], None]:
    """Return what puts the values of a buffer back; a lazy one has none."""
    if torch.nn.parameter.is_lazy(native):
        return lambda: None
    return partial(_overwrite, native, native.detach().clone())


def _overwrite(native: Any, value: Any) -> None:
    """Write a value into a tensor's memory, or make it its data where shape or dtype changed meanwhile."""
    with torch.inference_mode(native.is_inference()):
        data = native.data
        if (data.shape, data.dtype, data.device) != (value.shape, value.dtype, value.device):
            native.data = value
        elif data.layout is torch.strided:
            # An expanded tensor shares elements: torch refuses to write to more than one of each.
            single = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in data.stride())
            data[single].copy_(value[single])
        else:
            data.copy_(value)


def cast(native: Any, dtype: str) -> Any:
    """Return a tensor with the values of another in a wider dtype, without its history."""
    if native.is_quantized or torch.nn.parameter.is_lazy(native):
        msg = "it is quantized" if native.is_quantized else "it is not initialised yet"
        raise LiftError(msg)
    return native.detach().to(native_dtype(dtype))


def storage(native: Any) -> Any:
    """Return what holds a tensor's values."""
    return native.data


def hold(native: Any, storage: Any) -> None:
    """Put other values under a tensor; a gradient, whose dtype would no longer be the tensor's, goes."""
    if native.is_leaf:
        native.grad = None
    native.data = storage


def computing_in(dtype: str) -> AbstractContextManager[None]:
    """Let tensors that a forward makes without naming a dtype be of this one."""
    return switched(torch.get_default_dtype, torch.set_default_dtype, native_dtype(dtype))
