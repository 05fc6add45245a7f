"""Spell the neutral language in MindSpore."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from .kit import leaves, summary
from .kit_frameworks import NativeKit

__all__ = ["MindSporeKit"]


class MindSporeKit(NativeKit):
    """MindSpore, whose kernels are not all there in float64: whole models run in float32."""

    name = "mindspore"
    module_class = "Cell"
    method = "construct"
    wide = "float32"

    @property
    def functional(self) -> Any:
        return import_module("mindspore.ops")

    @property
    def ops(self) -> Any:
        return import_module("mindspore.ops")

    def constant(self, values: Any, like: Any) -> Any:
        return self.native.Tensor(np.asarray(values, dtype="float32")).astype(like.dtype)

    def permute(self, x: Any, *axes: int) -> Any:
        return x.permute(*axes)

    def cat(self, parts: Sequence[Any], axis: int = -1) -> Any:
        return self.ops.cat(list(parts), axis)

    def exp(self, x: Any) -> Any:
        return self.ops.exp(x)

    def sqrt(self, x: Any) -> Any:
        return self.ops.sqrt(x)

    def log(self, x: Any) -> Any:
        return self.ops.log(x)

    def gelu(self, x: Any, rough: bool) -> Any:
        return self.ops.gelu(x, approximate="tanh" if rough else "none")

    def gelu_module(self, rough: bool) -> Any:
        return self.nn.GELU(approximate=rough)

    def detach(self, x: Any) -> Any:
        return self.ops.stop_gradient(x)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(getattr(self.native, dtype))

    def numpy(self, x: Any) -> np.ndarray:
        narrow = x.dtype in (self.native.bfloat16, self.native.float16)
        return np.array((x.astype(self.native.float32) if narrow else x).asnumpy())

    def linear(self, n: int, m: int, bias: bool = True) -> Any:
        return self.nn.Dense(n, m, has_bias=bias)

    def layer_norm(self, n: int, eps: float = 1e-5) -> Any:
        return self.nn.LayerNorm((n,), epsilon=eps)

    def batch_norm(self, n: int, eps: float = 1e-5, momentum: float = 0.1) -> Any:
        return self.nn.BatchNorm2d(n, eps, 1 - momentum)

    def conv(self, n: int, m: int, size: int, stride: int = 1, padding: int = 0) -> Any:
        return self.nn.Conv2d(n, m, size, stride, pad_mode="pad", padding=padding, has_bias=True)

    def dropout(self, p: float) -> Any:
        return self.nn.Dropout(p=p)

    def parameter(self, values: np.ndarray) -> Any:
        return self.native.Parameter(self.native.Tensor(values.copy()))

    def modules(self, layers: Sequence[Any]) -> Any:
        return self.nn.CellList(list(layers))

    def sequential(self, *layers: Any) -> Any:
        return self.nn.SequentialCell(*layers)

    def train(self, model: Any, training: bool) -> None:
        model.set_train(training)

    def trainable(self, model: Any) -> list[Any]:
        return list(model.trainable_params())

    def tensors(self, model: Any) -> list[Any]:
        return list(model.get_parameters())

    def named(self, model: Any) -> dict[str, Any]:
        return dict(model.cells_and_names())

    def assign(self, tensor: Any, values: np.ndarray) -> None:
        tensor.set_data(self.native.Tensor(values))

    def to(self, model: Any, dtype: str) -> None:
        model.to_float(getattr(self.native, dtype))

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad = False

    def wholly(self, model: Any, arrays: Sequence[np.ndarray], *, lift: bool = True) -> list[np.ndarray]:
        """Run freely in float32."""
        before = [self.numpy(t) for t in self.tensors(model)]
        given = [self.native.Tensor(np.array(a)) for a in arrays]
        floats = tuple(i for i, a in enumerate(arrays) if a.dtype.kind == "f")
        outputs: list[Any] = []

        def forward(*inputs: Any) -> Any:
            outputs[:] = leaves(model(*inputs))
            rng = np.random.default_rng(5)
            return sum((y * self.native.Tensor(rng.standard_normal(y.shape).astype("float32"))).sum() for y in outputs)

        weights = self.trainable(model)
        found = self.native.value_and_grad(forward, floats or None, weights)(*given)[1]
        ours, theirs = found if floats else ((), found)
        ours = ours if isinstance(ours, tuple) else (ours,)
        energy = summary([self.numpy(g) for g in theirs])
        state = summary([self.numpy(t) for t in self.tensors(model) if not t.requires_grad])
        result = [*map(self.numpy, outputs), *map(self.numpy, ours), energy, state]
        for tensor, values in zip(self.tensors(model), before, strict=True):
            self.assign(tensor, values)
        return result
