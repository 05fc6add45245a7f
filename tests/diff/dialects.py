"""Spell a kit in torch, in Paddle and in MindSpore."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from importlib import import_module
from itertools import permutations
from typing import Any

import numpy as np

from .kits import Kit

__all__ = ["DIRECTIONS", "FRAMEWORKS", "kit"]

FRAMEWORKS = ("torch", "paddle", "mindspore")
DIRECTIONS = tuple(permutations(FRAMEWORKS, 2))


class TorchKit(Kit):
    """Spell it in torch."""

    name = "torch"
    module_class = "Module"

    def tensor(self, values: Any) -> Any:
        return self.native.from_numpy(np.asarray(values).copy())

    def parameter(self, values: Any) -> Any:
        return self.nn.Parameter(self.tensor(values))

    def assign(self, tensor: Any, values: Any) -> None:
        tensor.data = self.tensor(values)

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.to(getattr(self.native, dtype))

    def concat(self, parts: Any, axis: int) -> Any:
        return self.native.cat(parts, axis)

    def permute(self, tensor: Any, *axes: int) -> Any:
        return tensor.permute(*axes)

    def linear(self, inputs: int, outputs: int, *, bias: bool = True) -> Any:
        return self.nn.Linear(inputs, outputs, bias=bias)

    def batch_norm(self, features: int, *, momentum: float = 0.1, eps: float = 1e-5) -> Any:
        return self.nn.BatchNorm1d(features, momentum=momentum, eps=eps)

    def attention(self, width: int, heads: int) -> Any:
        return self.nn.MultiheadAttention(width, heads, batch_first=True)

    def lstm(self, inputs: int, hidden: int) -> Any:
        return self.nn.LSTM(inputs, hidden, batch_first=True)

    def modules(self, layers: Iterable[Any]) -> Any:
        return self.nn.ModuleList(list(layers))

    def seed(self, seed: int) -> None:
        self.native.manual_seed(seed)

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad_(False)

    def frozen(self, tensor: Any) -> bool:
        return not tensor.requires_grad

    def no_grad(self) -> AbstractContextManager[Any]:
        return self.native.no_grad()

    def sgd(
        self, model: Any, lr: float = 0.1, *, weight_decay: float = 0.0, momentum: float = 0.0, without: str = ""
    ) -> Any:
        chosen = self._chosen(model, without)
        return self.native.optim.SGD(chosen, lr=lr, weight_decay=weight_decay, momentum=momentum)

    def adam(
        self, model: Any, lr: float = 1e-3, *, betas: Any = (0.9, 0.999), weight_decay: float = 0.0, eps: float = 1e-16
    ) -> Any:
        return self.native.optim.Adam(model.parameters(), lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def adamw(self, model: Any, lr: float = 1e-3, *, weight_decay: float = 0.01) -> Any:
        return self.native.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)

    def set_lr(self, optimizer: Any, lr: float) -> None:
        optimizer.param_groups[0]["lr"] = lr


class PaddleKit(Kit):
    """Spell it in Paddle."""

    name = "paddle"
    module_class = "Layer"
    means = ("_mean", "_variance")

    def tensor(self, values: Any) -> Any:
        return self.native.to_tensor(np.asarray(values))

    def parameter(self, values: Any) -> Any:
        parameter = self.native.create_parameter(list(np.shape(values)), str(np.asarray(values).dtype))
        parameter.set_value(np.asarray(values))
        return parameter

    def assign(self, tensor: Any, values: Any) -> None:
        tensor.set_value(np.asarray(values))

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.astype(dtype)

    def concat(self, parts: Any, axis: int) -> Any:
        return self.native.concat(parts, axis)

    def permute(self, tensor: Any, *axes: int) -> Any:
        return tensor.transpose(list(axes))

    def linear(self, inputs: int, outputs: int, *, bias: bool = True) -> Any:
        return self.nn.Linear(inputs, outputs, bias_attr=None if bias else False)

    def linear_weight(self, layer: Any) -> np.ndarray:
        return self.numpy(layer.weight).T

    def batch_norm(self, features: int, *, momentum: float = 0.1, eps: float = 1e-5) -> Any:
        return self.nn.BatchNorm1D(features, momentum=1 - momentum, epsilon=eps)

    def attention(self, width: int, heads: int) -> Any:
        return self.nn.MultiHeadAttention(width, heads)

    def lstm(self, inputs: int, hidden: int) -> Any:
        return self.nn.LSTM(inputs, hidden)

    def modules(self, layers: Iterable[Any]) -> Any:
        return self.nn.LayerList(list(layers))

    def seed(self, seed: int) -> None:
        self.native.seed(seed)

    def freeze(self, parameter: Any) -> None:
        parameter.stop_gradient = True

    def frozen(self, tensor: Any) -> bool:
        return bool(tensor.stop_gradient)

    def no_grad(self) -> AbstractContextManager[Any]:
        return self.native.no_grad()

    def sgd(
        self, model: Any, lr: float = 0.1, *, weight_decay: float = 0.0, momentum: float = 0.0, without: str = ""
    ) -> Any:
        settings = {"parameters": self._chosen(model, without), "weight_decay": weight_decay}
        if momentum:
            return self.native.optimizer.Momentum(lr, momentum, **settings)
        return self.native.optimizer.SGD(lr, **settings)

    def adam(
        self, model: Any, lr: float = 1e-3, *, betas: Any = (0.9, 0.999), weight_decay: float = 0.0, eps: float = 1e-16
    ) -> Any:
        settings = {"parameters": model.parameters(), "weight_decay": weight_decay or None}
        return self.native.optimizer.Adam(lr, *betas, eps, **settings)

    def adamw(self, model: Any, lr: float = 1e-3, *, weight_decay: float = 0.01) -> Any:
        return self.native.optimizer.AdamW(lr, parameters=model.parameters(), weight_decay=weight_decay)

    def set_lr(self, optimizer: Any, lr: float) -> None:
        optimizer.set_lr(lr)


class MindSporeKit(Kit):
    """Spell it in MindSpore, which has no ``backward``, and no gradient that stays behind."""

    name = "mindspore"
    module_class = "Cell"
    means = ("moving_mean", "moving_variance")
    has_float64 = False

    def tensor(self, values: Any) -> Any:
        return self.native.Tensor(np.array(values, copy=True))

    def parameter(self, values: Any) -> Any:
        return self.native.Parameter(self.tensor(values))

    def numpy(self, tensor: Any) -> np.ndarray:
        return np.array(tensor.asnumpy(), copy=True)

    def assign(self, tensor: Any, values: Any) -> None:
        tensor.set_data(self.tensor(values))

    def detach(self, tensor: Any) -> Any:
        return self.native.ops.stop_gradient(tensor)

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.astype(getattr(self.native, dtype))

    def concat(self, parts: Any, axis: int) -> Any:
        return self.native.ops.cat(parts, axis)

    def permute(self, tensor: Any, *axes: int) -> Any:
        return tensor.permute(*axes)

    def flip(self, tensor: Any) -> Any:
        return self.native.ops.flip(tensor, [-1])

    def rand(self, size: int) -> Any:
        return self.native.ops.rand(size)

    @property
    def functional(self) -> Any:
        return self.native.ops

    def linear(self, inputs: int, outputs: int, *, bias: bool = True) -> Any:
        return self.nn.Dense(inputs, outputs, has_bias=bias)

    def batch_norm(self, features: int, *, momentum: float = 0.1, eps: float = 1e-5) -> Any:
        return self.nn.BatchNorm1d(features, momentum=1 - momentum, eps=eps)

    def layer_norm(self, features: int, eps: float = 1e-5) -> Any:
        return self.nn.LayerNorm((features,), epsilon=eps)

    def dropout(self, p: float) -> Any:
        return self.nn.Dropout(p=p)

    def gelu(self) -> Any:
        return self.nn.GELU(approximate=False)

    def softplus(self) -> Any:
        softplus = self.native.ops.softplus
        return type("Softplus", (self.module,), {"construct": lambda self, x: softplus(x)})()

    def table(self, embedding: Any) -> Any:
        return embedding.embedding_table

    def attention(self, width: int, heads: int) -> Any:
        return self.nn.MultiheadAttention(width, heads, batch_first=True)

    def lstm(self, inputs: int, hidden: int) -> Any:
        return self.nn.LSTM(inputs, hidden, batch_first=True)

    def sequential(self, *layers: Any) -> Any:
        return self.nn.SequentialCell(*layers)

    def modules(self, layers: Iterable[Any]) -> Any:
        return self.nn.CellList(list(layers))

    def cross_entropy(self, logits: Any, labels: np.ndarray) -> Any:
        return self.nn.CrossEntropyLoss()(logits, self.tensor(labels.astype("int32")))

    def seed(self, seed: int) -> None:
        self.native.set_seed(seed)

    def train(self, module: Any) -> None:
        module.set_train(True)

    def eval(self, module: Any) -> None:
        module.set_train(False)

    def parameters(self, model: Any) -> dict[str, Any]:
        return {name: p for name, p in model.parameters_and_names() if p.requires_grad}

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad = False

    def frozen(self, tensor: Any) -> bool:
        return not tensor.requires_grad

    def backward(self, model: Any, x: Any, loss: Callable[[Any], Any]) -> dict[str, np.ndarray]:
        parameters = self.parameters(model)
        forward = self.native.value_and_grad(lambda x: loss(model(x)), None, list(parameters.values()))
        return dict(zip(parameters, map(self.numpy, forward(x)[1]), strict=True))

    def gradient(self, parameter: Any) -> np.ndarray:
        return self.numpy(parameter._grad)

    def no_grad(self) -> AbstractContextManager[Any]:
        return self.native._no_grad()

    def sgd(
        self, model: Any, lr: float = 0.1, *, weight_decay: float = 0.0, momentum: float = 0.0, without: str = ""
    ) -> Any:
        optim = import_module("mindspore.experimental.optim")
        return optim.SGD(self._chosen(model, without), lr=lr, momentum=momentum, weight_decay=weight_decay)

    def adam(
        self, model: Any, lr: float = 1e-3, *, betas: Any = (0.9, 0.999), weight_decay: float = 0.0, eps: float = 1e-16
    ) -> Any:
        optim = import_module("mindspore.experimental.optim")
        return optim.Adam(self._chosen(model, ""), lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def adamw(self, model: Any, lr: float = 1e-3, *, weight_decay: float = 0.01) -> Any:
        optim = import_module("mindspore.experimental.optim")
        return optim.AdamW(self._chosen(model, ""), lr=lr, weight_decay=weight_decay)

    def set_lr(self, optimizer: Any, lr: float) -> None:
        self.native.ops.assign(optimizer.param_groups[0]["lr"], self.tensor(np.float32(lr)))

    def step(self, optimizer: Any, gradients: Any = None) -> None:
        optimizer(gradients or tuple(parameter._grad for parameter in optimizer.parameters))


_KITS: dict[str, Kit] = {}


def kit(name: str) -> Kit:
    """Return the kit of a framework."""
    if name not in _KITS:
        _KITS[name] = {"torch": TorchKit, "paddle": PaddleKit, "mindspore": MindSporeKit}[name]()
    return _KITS[name]
