"""Hold the layers of one dialect: weights as (out, in), images channels first, packed attention, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from padiff.testing.toy import _module, functional
from padiff.testing.toy._tape import Tensor as _Tensor

__all__ = [
    "GELU", "SGD", "Attention", "BatchNorm", "Conv2d", "Dropout", "Embedding", "LSTMCell", "LayerNorm", "Linear",
    "Module", "ModuleList", "ReLU", "Sequential", "Tanh", "Tensor", "buffer", "parameter",
]  # fmt: skip

__version__ = "1.0"


class Tensor(_Tensor):
    """A tensor of this dialect."""


class Module(_module.Module):
    """A module of this dialect."""


class ModuleList(_module.ModuleList, Module):
    """Modules under the names 0, 1, 2."""


class Sequential(_module.Sequential, Module):
    """Modules called one after another."""


def parameter(*shape: int, scale: float = 1.0, at: float = 0.0) -> Tensor:
    """Return a random parameter around a number."""
    values = np.random.normal(at, scale, shape).astype(np.float32)
    return Tensor(values, requires_grad=True, role="parameter")


def buffer(values: Any) -> Tensor:
    """Return a buffer."""
    return Tensor(np.array(values, np.float32), role="buffer")


class Linear(Module):
    """A product with a weight (out, in), and a bias."""

    def __init__(self, n_in: int, n_out: int, bias: bool = True) -> None:
        self.weight = parameter(n_out, n_in, scale=n_in**-0.5)
        self.bias = parameter(n_out) if bias else None

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.linear(x, self.weight.transpose(1, 0), self.bias)


class Conv2d(Module):
    """A convolution of (batch, in, height, width) with a weight (out, in, height, width)."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, padding: int = 0) -> None:
        self.weight = parameter(n_out, n_in, size, size, scale=(n_in * size * size) ** -0.5)
        self.bias = parameter(n_out)
        self.stride, self.padding = stride, padding

    def forward(self, x: Any) -> Any:
        """Compute it."""
        weight, x = self.weight.transpose(2, 3, 1, 0), x.transpose(0, 2, 3, 1)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding).transpose(0, 3, 1, 2)


class LayerNorm(Module):
    """Normalise the last axis, or as many of the last axes as ``features`` are given for."""

    def __init__(self, features: int | tuple[int, ...], eps: float = 1e-5) -> None:
        shape = features if isinstance(features, tuple) else (features,)
        self.weight, self.bias, self.eps = parameter(*shape, scale=0.3, at=1.0), parameter(*shape), eps

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.layer_norm(x, self.weight, self.bias, self.eps)


class BatchNorm(Module):
    """Normalise all axes but the second; ``momentum`` is the weight of the new batch."""

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        self.weight, self.bias = parameter(features, scale=0.3, at=1.0), parameter(features)
        self.running_mean, self.running_var = buffer(np.zeros(features)), buffer(np.ones(features))
        self.eps, self.momentum = eps, momentum

    def forward(self, x: Any) -> Any:
        """Compute it."""
        running = self.running_mean, self.running_var
        mode: dict[str, Any] = {"eps": self.eps, "momentum": self.momentum, "training": self.training, "axis": 1}
        return functional.batch_norm(x, self.weight, self.bias, *running, **mode)


class Embedding(Module):
    """Rows of a table."""

    def __init__(self, entries: int, features: int) -> None:
        self.weight = parameter(entries, features)

    def forward(self, indices: Any) -> Any:
        """Compute it."""
        return functional.embedding(indices, self.weight)


class Dropout(Module):
    """Zero elements by chance, with a probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.dropout(x, self.p, self.training)


class ReLU(Module):
    """What is above zero."""

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.relu(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.tanh(x)


class GELU(Module):
    """The Gaussian error linear unit."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.gelu(x, self.approximate)


class Attention(Module):
    """Self-attention whose queries, keys and values come of one packed weight (3 * features, features)."""

    def __init__(self, features: int, heads: int) -> None:
        self.packed, self.packed_bias = parameter(3 * features, features, scale=features**-0.5), parameter(3 * features)
        self.out, self.heads = Linear(features, features), heads

    def forward(self, x: Any) -> Any:
        """Compute it."""
        n = x.shape[-1]
        packed = functional.linear(x, self.packed.transpose(1, 0), self.packed_bias)
        q, k, v = (packed[..., i * n : (i + 1) * n] for i in range(3))
        return self.out(functional.attention(q, k, v, self.heads))


class LSTMCell(Module):
    """One step of an LSTM; gates in the order input, forget, cell, output."""

    def __init__(self, n_in: int, hidden: int) -> None:
        self.weight_ih = parameter(4 * hidden, n_in, scale=n_in**-0.5)
        self.weight_hh = parameter(4 * hidden, hidden, scale=hidden**-0.5)
        self.bias_ih, self.bias_hh = parameter(4 * hidden), parameter(4 * hidden)

    def forward(self, x: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the next hidden state and cell state."""
        hidden, cell = state
        gates = functional.linear(x, self.weight_ih.transpose(1, 0), self.bias_ih)
        gates = gates + functional.linear(hidden, self.weight_hh.transpose(1, 0), self.bias_hh)
        n = hidden.shape[-1]
        i, f, g, o = (gates[:, k * n : (k + 1) * n] for k in range(4))
        cell = functional.sigmoid(f) * cell + functional.sigmoid(i) * functional.tanh(g)
        return functional.sigmoid(o) * functional.tanh(cell), cell


class SGD:
    """Stochastic gradient descent."""

    def __init__(self, parameters: Any, lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.parameters, self.lr, self.momentum, self.weight_decay = list(parameters), lr, momentum, weight_decay
        self.velocities: dict[Any, Any] = {}

    def step(self) -> None:
        """Take one step with the gradients that are there."""
        for tensor in self.parameters:
            if tensor.grad is not None and tensor.requires_grad:
                gradient = tensor.grad + self.weight_decay * tensor.data
                if self.momentum:
                    gradient = self.velocities[tensor] = self.momentum * self.velocities.get(tensor, 0) + gradient
                tensor.data[...] = tensor.data - self.lr * gradient

    def clear(self) -> None:
        """Drop all gradients."""
        for tensor in self.parameters:
            tensor.grad = None
