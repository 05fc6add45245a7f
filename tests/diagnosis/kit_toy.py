"""Spell the neutral language in both dialects of the toy framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from padiff.testing.toy import _tape, columns, functional, rows

from .kit import Kit, Layout, leaves, lifted, summary

__all__ = ["ToyKit"]


class ToyKit(Kit):
    """A dialect of the toy framework."""

    def __init__(self, name: str, layout: Layout | None = None) -> None:
        super().__init__(layout)
        self.name = name
        self.rows = name == "rows"
        self.native: Any = rows if self.rows else columns
        self.Module = rows.Module if self.rows else columns.Layer

    # Values

    def constant(self, values: Any, like: Any) -> Any:
        return self.native.Tensor(np.asarray(values).astype(like.data.dtype))

    def permute(self, x: Any, *axes: int) -> Any:
        return x.transpose(*axes)

    def reshape(self, x: Any, *shape: int) -> Any:
        return x.reshape(*shape)

    def cat(self, parts: Sequence[Any], axis: int = -1) -> Any:
        return functional.concat(list(parts), axis)

    def mean(self, x: Any, axis: int, keep: bool = False) -> Any:
        return x.mean(axis, keep)

    def sum(self, x: Any, axis: int, keep: bool = False) -> Any:
        return x.sum(axis, keep)

    def softmax(self, x: Any, axis: int = -1) -> Any:
        return functional.softmax(x, axis)

    def exp(self, x: Any) -> Any:
        return x.exp()

    def sqrt(self, x: Any) -> Any:
        return x.sqrt()

    def log(self, x: Any) -> Any:
        return _tape.made(x, np.log(x.data), (x, lambda g: g / x.data))

    def act(self, x: Any, name: str) -> Any:
        if name == "gelu_tanh":
            return functional.gelu(x, "tanh")
        return getattr(functional, name)(x)

    def detach(self, x: Any) -> Any:
        return type(x)(x.data.copy())

    def cast(self, x: Any, dtype: str) -> Any:
        before = x.data.dtype
        return type(x)(x.data.astype(dtype), sources=((x, lambda g: g.astype(before)),))

    def like(self, x: Any, other: Any) -> Any:
        return self.cast(x, other.dtype)

    def numpy(self, x: Any) -> np.ndarray:
        return np.array(x.data)

    # Modules

    def linear(self, n: int, m: int, bias: bool = True) -> Any:
        return rows.Linear(n, m, bias) if self.rows else columns.Dense(n, m, bias)

    def layer_norm(self, n: int, eps: float = 1e-5) -> Any:
        return rows.LayerNorm(n, eps) if self.rows else columns.LayerNormalization(n, eps)

    def batch_norm(self, n: int, eps: float = 1e-5, momentum: float = 0.1) -> Any:
        return (
            rows.BatchNorm(n, eps, momentum) if self.rows else Turned(columns.BatchNormalization(n, eps, 1 - momentum))
        )

    def embedding(self, n: int, m: int) -> Any:
        return rows.Embedding(n, m) if self.rows else columns.Embed(n, m)

    def conv(self, n: int, m: int, size: int, stride: int = 1, padding: int = 0) -> Any:
        return (
            rows.Conv2d(n, m, size, stride, padding) if self.rows else Turned(columns.Conv(n, m, size, stride, padding))
        )

    def dropout(self, p: float) -> Any:
        return rows.Dropout(p) if self.rows else columns.Drop(1 - p)

    def activation(self, name: str) -> Any:
        rough = name == "gelu_tanh"
        known: dict[str, Any] = {
            "relu": (rows.ReLU, columns.Rectifier),
            "tanh": (rows.Tanh, columns.Tangent),
            "gelu": (rows.GELU, columns.Gelu),
            "gelu_tanh": (lambda: rows.GELU("tanh"), lambda: columns.Gelu(rough)),
            "silu": (RowsSilu, ColumnsSilu),
            "sigmoid": (RowsSigmoid, ColumnsSigmoid),
        }
        return known[name][not self.rows]()

    def parameter(self, values: np.ndarray) -> Any:
        return self.native.Tensor(values, requires_grad=True, role="parameter")

    def modules(self, layers: Sequence[Any]) -> Any:
        return (rows.ModuleList if self.rows else columns.Layers)(*layers)

    def sequential(self, *layers: Any) -> Any:
        return (rows.Sequential if self.rows else columns.Stack)(*layers)

    # Models

    def named(self, model: Any) -> dict[str, Any]:
        return dict(model.walk())

    def tensors(self, model: Any) -> list[Any]:
        return list(dict.fromkeys(t for _, module in model.walk() for t in module.tensors().values()))

    def trainable(self, model: Any) -> list[Any]:
        return list(model.parameters())

    def assign(self, tensor: Any, values: np.ndarray) -> None:
        tensor.data = values

    def to(self, model: Any, dtype: str) -> None:
        model.to(dtype)

    def train(self, model: Any, training: bool) -> None:
        model.train(training)

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad = False

    def tap(self, module: Any, keep: Any) -> Any:
        pair = (lambda args, kwargs: None), (lambda args, kwargs, output: keep(output))
        module.hooks.append(pair)
        return lambda: module.hooks.remove(pair)

    def wholly(self, model: Any, arrays: Sequence[np.ndarray], *, lift: bool = True) -> list[np.ndarray]:
        """Run freely, in float64 if asked: outputs, input gradients, and the size of all parameters' gradients."""
        before = [(tensor, tensor.data, tensor.data.copy()) for tensor in self.tensors(model)]
        for tensor, data, _ in before:
            tensor.data = data.astype("float64") if lift else data
        try:
            arrays = [lifted(a) for a in arrays] if lift else arrays
            given = [self.native.Tensor(a.copy(), requires_grad=a.dtype.kind == "f") for a in arrays]
            outputs = leaves(model(*given))
            rng = np.random.default_rng(5)
            _tape.backward([(y, rng.standard_normal(y.shape)) for y in outputs])
            energy = sum(float(np.sum(np.square(p.grad))) for p in model.parameters() if p.grad is not None)
            gradients = [x.grad for x in given if x.requires_grad and x.grad is not None]
            buffers = [t.data for t in self.tensors(model) if t.role == "buffer"]
            return [*(y.data for y in outputs), *gradients, np.asarray(energy), summary(buffers)]
        finally:
            for tensor, data, values in before:
                tensor.data, tensor.grad = data, None
                tensor.data[...] = values


class Turned(columns.Layer):
    """A layer of images with the channels last, for images with the channels second."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


class RowsSilu(rows.Module):
    """x times its logistic function."""

    def forward(self, x: Any) -> Any:
        return functional.silu(x)


class ColumnsSilu(columns.Layer):
    """x times its logistic function."""

    def forward(self, x: Any) -> Any:
        return functional.silu(x)


class RowsSigmoid(rows.Module):
    """The logistic function."""

    def forward(self, x: Any) -> Any:
        return functional.sigmoid(x)


class ColumnsSigmoid(columns.Layer):
    """The logistic function."""

    def forward(self, x: Any) -> Any:
        return functional.sigmoid(x)
