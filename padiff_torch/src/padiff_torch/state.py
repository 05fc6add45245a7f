"""Put a model back as it was: what a run changes, and what a wider dtype replaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch

from padiff.errors import LiftError
from padiff.pytree import map_leaves
from padiff_torch.tensor import dtype_of

__all__ = ["lifted", "preserved"]

# Packages whose modules keep their weights packed, out of reach of a change of dtype.
_PACKED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "bitsandbytes")


@contextmanager
def preserved(model: Any) -> Iterator[None]:
    """Put back gradients, requires_grad, modes, buffers (in place) and plain attributes on leaving."""
    modules = list(model.modules())
    with ExitStack() as stack:
        for module in modules:
            stack.callback(_Attributes(module).restore)
            stack.callback(setattr, module, "training", module.training)
            stack.callback(_Buffers(module).restore)
        for leaf in (*model.parameters(), *model.buffers()):
            stack.callback(_Leaf(leaf).restore)
        yield


@contextmanager
def lifted(model: Any, dtype: str) -> Iterator[None]:
    """Hold floating tensors in at least ``dtype``, the default dtype too; put the old storages back after.

    Objects stay the same, only their data is exchanged: so tied parameters stay tied, and whoever holds one
    sees the wider values. Raises `LiftError` where a tensor cannot be moved.
    """
    target = dtype_of(dtype)
    if not target.is_floating_point:
        msg = f"{dtype} is no floating dtype\nHint: lift to float64"
        raise LiftError(msg)
    with ExitStack() as stack:
        for path, module in model.named_modules():
            if type(module).__module__.startswith(_PACKED):
                msg = f"{path!r} ({type(module).__module__}.{type(module).__qualname__}) is quantized: packed "
                msg += "weights have no wider form\nHint: compare the model before quantization"
                raise LiftError(msg)
            stack.callback(_Attributes(module).restore)
            stack.callback(_Buffers(module).restore)
        done = set()
        for path, native in (*model.named_parameters(), *model.named_buffers()):
            done.add(id(native))
            _lift(path, native, target, stack)
        for module in model.modules():
            _lift_attributes(module, target, done)
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(target)
        yield


class _Leaf:
    """Remember the gradient and requires_grad of one parameter or buffer."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.grad = native.grad if native.is_leaf else None
        self.requires_grad = native.requires_grad

    def restore(self) -> None:
        if self.native.is_leaf:
            self.native.requires_grad_(self.requires_grad)
            self.native.grad = self.grad


class _Buffers:
    """Remember a module's buffers, the objects and their values."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.objects = dict(module._buffers)
        self.transient = set(module._non_persistent_buffers_set)
        self.values = {
            name: buffer.detach().clone()
            for name, buffer in self.objects.items()
            if buffer is not None and not torch.nn.parameter.is_lazy(buffer)
        }

    def restore(self) -> None:
        if any(torch.nn.parameter.is_lazy(buffer) for buffer in self.objects.values()):
            return  # a first run built the module: that cannot be undone
        self.module._buffers.clear()
        self.module._buffers.update(self.objects)
        self.module._non_persistent_buffers_set.clear()
        self.module._non_persistent_buffers_set.update(self.transient)
        for name, value in self.values.items():
            _overwrite(self.objects[name], value)


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


@cache
def _machinery() -> frozenset[str]:
    """Return the names of the attributes that torch itself keeps on every module."""
    return frozenset(torch.nn.Module().__dict__)


class _Attributes:
    """Remember a module's plain attributes: a cache filled by a run would keep its dtype, batch and graph."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.cls = type(module)
        self.values = self._now()

    def _now(self) -> dict[str, Any]:
        return {name: value for name, value in self.module.__dict__.items() if name not in _machinery()}

    def restore(self) -> None:
        if type(self.module) is not self.cls:
            return  # a lazy module, built by its first run: that cannot be undone
        now = self._now()
        for name in now.keys() - self.values.keys():
            del self.module.__dict__[name]
        for name, value in self.values.items():
            if name not in now or now[name] is not value:
                self.module.__dict__[name] = value


def _wider(native: Any, target: Any) -> Any | None:
    """Return the dtype that a tensor is lifted to, or None where it stays: integers, what is wide already."""
    if native.is_complex():
        return torch.complex128 if target is torch.float64 and native.dtype is not torch.complex128 else None
    return target if native.is_floating_point() and native.dtype.itemsize < target.itemsize else None


def _lift(path: str, native: Any, target: Any, stack: ExitStack) -> None:
    if native.is_quantized or torch.nn.parameter.is_lazy(native):
        state = "quantized" if native.is_quantized else "not initialised yet"
        msg = f"{path!r} is {state} and cannot be held in {target}"
        raise LiftError(msg)
    dtype = _wider(native, target)
    if dtype is None:
        return
    data, grad = native.data, native.grad if native.is_leaf else None
    try:
        wide = data.to(dtype)
        stack.callback(_put_back, native, data, grad)
        if grad is not None:
            native.grad = None  # its dtype would no longer be the parameter's
        native.data = wide
    except (RuntimeError, TypeError, NotImplementedError) as error:
        msg = f"{path!r} ({type(native).__qualname__}, {native.dtype}) cannot be held in {dtype}: {error}"
        raise LiftError(msg) from error


def _put_back(native: Any, data: Any, grad: Any) -> None:
    if native.is_leaf:
        native.grad = None
    native.data = data
    if grad is not None:
        native.grad = grad


def _lift_attributes(module: Any, target: Any, done: set[int]) -> None:
    """Lift tensors that a module keeps as plain attributes, or in a list or dict of its own."""

    def wanted(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and id(value) not in done and not value.is_quantized

    def widened(_: str, value: Any) -> Any:
        dtype = _wider(value, target)
        return value if dtype is None else value.detach().to(dtype)

    for name, value in module.__dict__.items():
        if name not in _machinery() and isinstance(value, torch.Tensor | list | tuple | dict):
            module.__dict__[name] = map_leaves(value, wanted, widened)
