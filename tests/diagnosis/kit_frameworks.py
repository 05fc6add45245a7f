"""Spell the neutral language in PyTorch and in Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from .kit import Kit, Layout, leaves, lifted, summary

__all__ = ["NativeKit", "PaddleKit", "TorchKit"]


class NativeKit(Kit):
    """What PyTorch, Paddle and MindSpore spell alike."""

    module_class = "Module"

    def __init__(self, layout: Layout | None = None) -> None:
        super().__init__(layout)
        self.native = import_module(self.name)
        self.nn = import_module(f"{self.name}.nn")
        self.Module = getattr(self.nn, self.module_class)

    def begin(self) -> None:
        (getattr(self.native, "manual_seed", None) or self.native.seed)(0)

    @property
    def functional(self) -> Any:
        return self.nn.functional

    def softmax(self, x: Any, axis: int = -1) -> Any:
        return self.functional.softmax(x, axis)

    def mean(self, x: Any, axis: int, keep: bool = False) -> Any:
        return x.mean(axis, keep)

    def sum(self, x: Any, axis: int, keep: bool = False) -> Any:
        return x.sum(axis, keepdim=keep)

    def exp(self, x: Any) -> Any:
        return self.native.exp(x)

    def sqrt(self, x: Any) -> Any:
        return self.native.sqrt(x)

    def log(self, x: Any) -> Any:
        return self.native.log(x)

    def act(self, x: Any, name: str) -> Any:
        if name.startswith("gelu"):
            return self.gelu(x, name == "gelu_tanh")
        return getattr(self.functional, name)(x)

    def activation(self, name: str) -> Any:
        if name.startswith("gelu"):
            return self.gelu_module(name == "gelu_tanh")
        names = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "silu": "SiLU"}
        return getattr(self.nn, names[name])()

    def detach(self, x: Any) -> Any:
        return x.detach()

    def like(self, x: Any, other: Any) -> Any:
        return x.astype(other.dtype)

    def layer_norm(self, n: int, eps: float = 1e-5) -> Any:
        return self.nn.LayerNorm(n, eps)

    def embedding(self, n: int, m: int) -> Any:
        return self.nn.Embedding(n, m)

    def dropout(self, p: float) -> Any:
        return self.nn.Dropout(p)

    def sequential(self, *layers: Any) -> Any:
        return self.nn.Sequential(*layers)

    def train(self, model: Any, training: bool) -> None:
        model.train() if training else model.eval()

    def trainable(self, model: Any) -> list[Any]:
        return list(model.parameters())

    def wholly(self, model: Any, arrays: Sequence[np.ndarray], *, lift: bool = True) -> list[np.ndarray]:
        """Run freely, in float64 if asked: outputs, input gradients, and the size of all parameters' gradients."""
        before = [self.numpy(t) for t in self.tensors(model)]
        if lift:
            self.to(model, "float64")
        try:
            given = [self.leaf(lifted(a) if lift else a) for a in arrays]
            outputs = leaves(model(*given))
            rng = np.random.default_rng(5)
            ends = [self.leaf(rng.standard_normal(tuple(y.shape)), False) for y in outputs]
            total = sum((y * self.like(end, y)).sum() for y, end in zip(outputs, ends, strict=True))
            total.backward()
            gradients = [self.numpy(p.grad) for p in self.trainable(model) if p.grad is not None]
            sent = [self.numpy(x.grad) for x in given if x.grad is not None]
            state = summary([self.numpy(t) for t in self.state(model)])
            return [*map(self.numpy, outputs), *sent, summary(gradients), state]
        finally:
            self.to(model, self.dtype)
            for tensor, values in zip(self.tensors(model), before, strict=True):
                self.assign(tensor, values)
            for p in self.trainable(model):
                self.forget(p)

    def tap(self, module: Any, keep: Any) -> Any:
        attach = getattr(module, "register_forward_post_hook", None) or module.register_forward_hook

        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            keep(output)

        return attach(hook).remove


class TorchKit(NativeKit):
    """PyTorch."""

    name = "torch"

    def constant(self, values: Any, like: Any) -> Any:
        return self.native.from_numpy(np.asarray(values, dtype="float64")).to(like.dtype)

    def permute(self, x: Any, *axes: int) -> Any:
        return x.permute(*axes)

    def cat(self, parts: Sequence[Any], axis: int = -1) -> Any:
        return self.native.cat(list(parts), axis)

    def gelu(self, x: Any, rough: bool) -> Any:
        return self.functional.gelu(x, approximate="tanh" if rough else "none")

    def gelu_module(self, rough: bool) -> Any:
        return self.nn.GELU("tanh" if rough else "none")

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(self.native, dtype))

    def like(self, x: Any, other: Any) -> Any:
        return x.to(other.dtype)

    def numpy(self, x: Any) -> np.ndarray:
        x = x.detach()
        return np.array((x.float() if x.dtype in (self.native.bfloat16, self.native.float16) else x).numpy())

    def linear(self, n: int, m: int, bias: bool = True) -> Any:
        return self.nn.Linear(n, m, bias=bias)

    def batch_norm(self, n: int, eps: float = 1e-5, momentum: float = 0.1) -> Any:
        return self.nn.BatchNorm2d(n, eps, momentum)

    def conv(self, n: int, m: int, size: int, stride: int = 1, padding: int = 0) -> Any:
        return self.nn.Conv2d(n, m, size, stride, padding)

    def parameter(self, values: np.ndarray) -> Any:
        return self.nn.Parameter(self.native.from_numpy(values.copy()))

    def modules(self, layers: Sequence[Any]) -> Any:
        return self.nn.ModuleList(list(layers))

    def named(self, model: Any) -> dict[str, Any]:
        return dict(model.named_modules())

    def tensors(self, model: Any) -> list[Any]:
        return [*model.parameters(), *model.buffers()]

    def state(self, model: Any) -> list[Any]:
        return [b for b in model.buffers() if b.is_floating_point()]

    def assign(self, tensor: Any, values: np.ndarray) -> None:
        tensor.data.copy_(self.native.from_numpy(np.array(values)))

    def to(self, model: Any, dtype: str) -> None:
        model.to(getattr(self.native, dtype))

    def leaf(self, values: np.ndarray, grad: bool = True) -> Any:
        x = self.native.from_numpy(np.array(values))
        return x.requires_grad_(grad and values.dtype.kind == "f")

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad_(False)

    def forget(self, parameter: Any) -> None:
        parameter.grad = None


class PaddleKit(NativeKit):
    """Paddle."""

    name = "paddle"
    module_class = "Layer"

    def constant(self, values: Any, like: Any) -> Any:
        return self.native.to_tensor(np.asarray(values, dtype="float64")).astype(like.dtype)

    def permute(self, x: Any, *axes: int) -> Any:
        return x.transpose(list(axes))

    def reshape(self, x: Any, *shape: int) -> Any:
        return x.reshape(list(shape))

    def cat(self, parts: Sequence[Any], axis: int = -1) -> Any:
        return self.native.concat(list(parts), axis)

    def gelu(self, x: Any, rough: bool) -> Any:
        return self.functional.gelu(x, approximate=rough)

    def gelu_module(self, rough: bool) -> Any:
        return self.nn.GELU(rough)

    def activation(self, name: str) -> Any:
        return self.nn.Silu() if name == "silu" else super().activation(name)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(dtype)

    def numpy(self, x: Any) -> np.ndarray:
        x = x.detach()
        narrow = x.dtype in (self.native.bfloat16, self.native.float16)
        return np.array((x.astype("float32") if narrow else x).numpy())

    def linear(self, n: int, m: int, bias: bool = True) -> Any:
        return self.nn.Linear(n, m, bias_attr=None if bias else False)

    def batch_norm(self, n: int, eps: float = 1e-5, momentum: float = 0.1) -> Any:
        return self.nn.BatchNorm2D(n, 1 - momentum, eps)

    def conv(self, n: int, m: int, size: int, stride: int = 1, padding: int = 0) -> Any:
        return self.nn.Conv2D(n, m, size, stride, padding)

    def parameter(self, values: np.ndarray) -> Any:
        made = self.native.create_parameter(list(values.shape), str(values.dtype))
        made.set_value(values)
        return made

    def modules(self, layers: Sequence[Any]) -> Any:
        return self.nn.LayerList(list(layers))

    def named(self, model: Any) -> dict[str, Any]:
        return dict(model.named_sublayers(include_self=True))

    def tensors(self, model: Any) -> list[Any]:
        return [*model.parameters(), *model.buffers()]

    def trainable(self, model: Any) -> list[Any]:
        kept = set(map(id, self.state(model)))
        return [parameter for parameter in model.parameters() if id(parameter) not in kept]

    def state(self, model: Any) -> list[Any]:
        found = {name: one for _, layer in model.named_sublayers(include_self=True) for name, one in _kept(layer)}
        return list(found.values())

    def assign(self, tensor: Any, values: np.ndarray) -> None:
        tensor.set_value(self.native.to_tensor(values).astype(tensor.dtype))

    def to(self, model: Any, dtype: str) -> None:
        model.to(dtype=dtype)

    def leaf(self, values: np.ndarray, grad: bool = True) -> Any:
        x = self.native.to_tensor(np.array(values))
        x.stop_gradient = not (grad and values.dtype.kind == "f")
        return x

    def freeze(self, parameter: Any) -> None:
        parameter.stop_gradient = True

    def forget(self, parameter: Any) -> None:
        parameter.clear_gradient(False)


def _kept(layer: Any) -> list[tuple[int, Any]]:
    """Return the running statistics of a layer: Paddle holds them as parameters."""
    found = (getattr(layer, name, None) for name in ("_mean", "_variance"))
    return [(id(one), one) for one in found if one is not None]
