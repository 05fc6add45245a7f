"""Hold the layers of the other dialect: weights as (in, out), images channels last, other names and conventions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from padiff.testing.toy import _module, functional
from padiff.testing.toy import rows as _rows
from padiff.testing.toy._tape import Tensor as _Tensor

__all__ = [
    "BatchNormalization", "Cell", "Conv", "Dense", "Descent", "Drop", "Embed", "Gelu", "Layer", "LayerNormalization",
    "Layers", "Rectifier", "SelfAttention", "Stack", "Tangent", "Tensor", "statistic", "weight",
]  # fmt: skip

__version__ = "2.0"


class Tensor(_Tensor):
    """A tensor of this dialect."""


class Layer(_module.Module):
    """A module of this dialect."""


class Layers(_module.ModuleList, Layer):
    """Layers under the names 0, 1, 2."""


class Stack(_module.Sequential, Layer):
    """Layers called one after another."""


def weight(*shape: int, scale: float = 1.0, at: float = 0.0) -> Tensor:
    """Return a random parameter around a number."""
    values = np.random.normal(at, scale, shape).astype(np.float32)
    return Tensor(values, requires_grad=True, role="parameter")


def statistic(values: Any) -> Tensor:
    """Return a buffer."""
    return Tensor(np.array(values, np.float32), role="buffer")


class Dense(Layer):
    """A product with a kernel (in, out), and an offset."""

    def __init__(self, n_in: int, n_out: int, bias: bool = True) -> None:
        self.offset = weight(n_out) if bias else None
        self.kernel = weight(n_in, n_out, scale=n_in**-0.5)

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.linear(x, self.kernel, self.offset)


class Conv(Layer):
    """A convolution of (batch, height, width, in) with a kernel (height, width, in, out)."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, padding: int = 0) -> None:
        self.kernel = weight(size, size, n_in, n_out, scale=(n_in * size * size) ** -0.5)
        self.offset = weight(n_out)
        self.step, self.margin = stride, padding

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.conv2d(x, self.kernel, self.offset, self.step, self.margin)


class LayerNormalization(Layer):
    """Normalise the last axis, or several; what scales and shifts them lies along one axis all the same."""

    def __init__(self, features: int | tuple[int, ...], epsilon: float = 1e-5) -> None:
        self.features = features if isinstance(features, tuple) else (features,)
        size = math.prod(self.features)
        self.beta, self.gamma, self.epsilon = weight(size), weight(size, scale=0.3, at=1.0), epsilon

    def forward(self, x: Any) -> Any:
        """Compute it."""
        both = self.gamma, self.beta
        gamma, beta = both if len(self.features) == 1 else (one.reshape(*self.features) for one in both)
        return functional.layer_norm(x, gamma, beta, self.epsilon)


class BatchNormalization(Layer):
    """Normalise all axes but the last; ``keep`` is the weight of the old statistics."""

    def __init__(self, features: int, epsilon: float = 1e-5, keep: float = 0.9) -> None:
        self.moving_variance, self.moving_mean = statistic(np.ones(features)), statistic(np.zeros(features))
        self.beta, self.gamma = weight(features), weight(features, scale=0.3, at=1.0)
        self.epsilon, self.keep = epsilon, keep

    def forward(self, x: Any) -> Any:
        """Compute it."""
        moving = self.moving_mean, self.moving_variance
        mode: dict[str, Any] = {"eps": self.epsilon, "momentum": 1 - self.keep, "training": self.training, "axis": -1}
        return functional.batch_norm(x, self.gamma, self.beta, *moving, **mode)


class Embed(Layer):
    """Rows of a table."""

    def __init__(self, entries: int, features: int) -> None:
        self.table = weight(entries, features)

    def forward(self, indices: Any) -> Any:
        """Compute it."""
        return functional.embedding(indices, self.table)


class Drop(Layer):
    """Zero elements by chance; ``keep`` is the probability to stay."""

    def __init__(self, keep: float = 0.5) -> None:
        self.keep = keep

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.dropout(x, 1 - self.keep, self.training)


class Rectifier(Layer):
    """What is above zero."""

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.relu(x)


class Tangent(Layer):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.tanh(x)


class Gelu(Layer):
    """The Gaussian error linear unit, by its approximation if asked."""

    def __init__(self, rough: bool = False) -> None:
        self.rough = rough

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return functional.gelu(x, "tanh" if self.rough else "none")


class SelfAttention(Layer):
    """Self-attention with layers for queries, keys and values; of (time, batch, features) if asked."""

    def __init__(self, features: int, heads: int, time_first: bool = False) -> None:
        self.result = Dense(features, features)
        self.value, self.key, self.query = (Dense(features, features) for _ in range(3))
        self.heads, self.time_first = heads, time_first

    def forward(self, x: Any) -> Any:
        """Compute it."""
        return self.result(self.attention(self.query(x), self.key(x), self.value(x)))

    def attention(self, q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
        """Return what attention makes of queries, keys and values."""
        if self.time_first:
            q, k, v = (one.transpose(1, 0, 2) for one in (q, k, v))
        found = functional.attention(q, k, v, self.heads, scale)
        return found.transpose(1, 0, 2) if self.time_first else found


class Cell(Layer):
    """One step of an LSTM; gates in the order forget, input, output, cell."""

    def __init__(self, n_in: int, hidden: int) -> None:
        self.recurrent = weight(hidden, 4 * hidden, scale=hidden**-0.5)
        self.kernel = weight(n_in, 4 * hidden, scale=n_in**-0.5)
        self.offset, self.recurrent_offset = weight(4 * hidden), weight(4 * hidden)

    def forward(self, x: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the next hidden state and cell state."""
        hidden, cell = state
        gates = functional.linear(x, self.kernel, self.offset)
        gates = gates + functional.linear(hidden, self.recurrent, self.recurrent_offset)
        n = hidden.shape[-1]
        f, i, o, g = (gates[:, k * n : (k + 1) * n] for k in range(4))
        cell = functional.sigmoid(f) * cell + functional.sigmoid(i) * functional.tanh(g)
        return functional.sigmoid(o) * functional.tanh(cell), cell


class Descent(_rows.SGD):
    """Stochastic gradient descent."""
