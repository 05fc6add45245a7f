"""Compute what layers compute, on tensors; both dialects use these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from padiff.testing.toy._tape import Tensor, added, made, product

__all__ = [
    "attention", "avg_pool2d", "batch_norm", "concat", "conv2d", "detach", "dropout", "embedding", "gelu", "layer_norm",
    "linear", "relu", "sigmoid", "silu", "softmax", "tanh",
]  # fmt: skip


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Return ``x @ weight + bias``: the weight is (in, out)."""
    result = product(x, weight)
    return result if bias is None else added(result, bias)


def relu(x: Any) -> Any:
    """Return what is above zero."""
    above = x.data > 0
    return made(x, np.where(above, x.data, 0), (x, lambda g: np.where(above, g, 0).astype(g.dtype)))


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent."""
    return x.tanh()


def sigmoid(x: Any) -> Any:
    """Return the logistic function."""
    return ((x * 0.5).tanh() + 1.0) * 0.5


def silu(x: Any) -> Any:
    """Return ``x * sigmoid(x)``."""
    return x * sigmoid(x)


def gelu(x: Any, approximate: str = "none") -> Any:
    """Return x times the normal distribution at x, by the error function or by its approximation with tanh."""
    if approximate == "tanh":
        return x * 0.5 * (((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1.0)
    return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1.0)


def softmax(x: Any, axis: int = -1) -> Any:
    """Return exponentials that add up to one along an axis."""
    powers = (x - type(x)(x.data.max(axis, keepdims=True))).exp()
    return powers / powers.sum(axis, keepdims=True)


def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Return x normalised along its last axis, or as many as the weight has, scaled and shifted."""
    last = tuple(range(-len(getattr(weight, "shape", (1,))), 0))
    centred = x - x.mean(last, keepdims=True)
    return centred / ((centred * centred).mean(last, keepdims=True) + eps).sqrt() * weight + bias


def batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *, eps: float, momentum: float, training: bool, axis: int
) -> Any:
    """Return x normalised over all axes but one; in training by the batch, which moves the running statistics."""
    others = tuple(i for i in range(len(x.shape)) if i != axis % len(x.shape))
    shape = [1 if i in others else n for i, n in enumerate(x.shape)]
    if training:
        centred = x - x.mean(others, keepdims=True)
        spread = (centred * centred).mean(others, keepdims=True)
        count = x.data.size // x.shape[axis]
        for running, new in ((mean, x.data.mean(others)), (variance, x.data.var(others) * count / max(count - 1, 1))):
            running.data[...] = running.data * (1 - momentum) + new * momentum
            running.version += 1
    else:
        centred, spread = x - mean.reshape(*shape), variance.reshape(*shape)
    return centred / (spread + eps).sqrt() * weight.reshape(*shape) + bias.reshape(*shape)


def detach(x: Any) -> Any:
    """Return the same elements, to which no gradient comes."""
    return type(x)(x.data)


def embedding(indices: Any, weight: Any) -> Any:
    """Return the rows of a table."""
    return weight[indices.data]


def dropout(x: Any, p: float, training: bool = True) -> Any:
    """Return x with elements zeroed by chance, the others scaled up."""
    if not training or p == 0:
        return x
    return x * type(x)(((np.random.random_sample(x.shape) >= p) / (1 - p)).astype(x.data.dtype))


def conv2d(x: Any, weight: Any, bias: Any = None, stride: int = 1, padding: int = 0) -> Any:
    """Return the convolution of (batch, height, width, in) with (height, width, in, out): a product at each offset."""
    if padding:
        x = _padded(x, padding)
    kernel = weight.shape[:2]
    sizes = [(n - k) // stride + 1 for n, k in zip(x.shape[1:3], kernel, strict=True)]
    total: Any = None
    for i, j in np.ndindex(*kernel):
        rows, columns = (slice(at, at + n * stride, stride) for at, n in zip((i, j), sizes, strict=True))
        part = x[:, rows, columns] @ weight[i, j]
        total = part if total is None else total + part
    return total if bias is None else total + bias


def avg_pool2d(x: Any, size: int) -> Any:
    """Return the mean of each square of a (batch, height, width, channels)."""
    batch, height, width, channels = x.shape
    return x.reshape(batch, height // size, size, width // size, size, channels).mean((2, 4))


def concat(tensors: Sequence[Any], axis: int = -1) -> Any:
    """Return tensors joined along an axis."""
    ends = np.cumsum([tensor.shape[axis] for tensor in tensors])[:-1]
    parts = [(tensor, lambda g, i=i: np.split(g, ends, axis)[i]) for i, tensor in enumerate(tensors)]
    return made(tensors[0], np.concatenate([tensor.data for tensor in tensors], axis), *parts)


def attention(q: Any, k: Any, v: Any, heads: int, scale: float | None = None) -> Any:
    """Return what each position of (batch, time, features) takes from all others, head by head."""
    batch, time, features = q.shape
    q, k, v = (one.reshape(batch, one.shape[1], heads, features // heads).transpose(0, 2, 1, 3) for one in (q, k, v))
    scores = softmax(q @ k.transpose(0, 1, 3, 2) * (scale or (features // heads) ** -0.5))
    return (scores @ v).transpose(0, 2, 1, 3).reshape(batch, time, features)


def _padded(x: Tensor, padding: int) -> Any:
    width = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    inner = slice(padding, -padding)
    return made(x, np.pad(x.data, width), (x, lambda g: g[:, inner, inner]))
