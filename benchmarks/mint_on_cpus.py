"""Let MindOne's models run on a CPU: give functions and layers of ``mindspore.mint`` that have no kernel there others.

These are made of MindSpore's older operations. `install` puts them in place; nothing of padiff is concerned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindspore as ms
import mindspore.common.initializer as initializers
import numpy as np
from mindspore import Tensor, mint, ops

__all__ = ["install"]

F = mint.nn.functional
WHOLE = (ms.int64, ms.bool_)


def _stack(tensors: Any, dim: int = 0) -> Any:
    return ops.stack(tuple(tensors), axis=dim)


def _full(size: Any, fill_value: Any, *, dtype: Any = None) -> Any:
    size = (size,) if isinstance(size, int) else tuple(size)
    return ops.full(size, fill_value, dtype=dtype or (ms.float32 if isinstance(fill_value, float) else ms.int64))


def _arange(*bounds: Any, dtype: Any = None, **named: Any) -> Any:
    start = [named["start"]] if "start" in named else []
    end = [named["end"]] if "end" in named else []
    step = [named["step"]] if "step" in named else []
    numbers = np.arange(*(one.item() if isinstance(one, Tensor) else one for one in (*bounds, *start, *end, *step)))
    return Tensor(numbers, dtype or (ms.float32 if numbers.dtype.kind == "f" else ms.int64))


def _cumsum(x: Any, dim: int, dtype: Any = None) -> Any:
    whole = x.dtype in WHOLE
    return ops.cumsum(x.astype(ms.int32) if whole else x, dim).astype(dtype or (ms.int64 if whole else x.dtype))


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, places = ops.topk(x, k, dim, largest, sorted)
    return values, places.astype(ms.int64)


def _sort(x: Any, *, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    values, places = ops.sort(x, axis=dim, descending=descending)
    return values, places.astype(ms.int64)


def _one_hot(x: Any, num_classes: int = -1) -> Any:
    count = int(x.max()) + 1 if num_classes == -1 else num_classes
    return ops.one_hot(x, count, Tensor(1, ms.int64), Tensor(0, ms.int64))


def _norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return ops.sqrt(ops.sum(x * x, dim, keepdim=keepdim))


def _roll(x: Any, shifts: Any, dims: Any = None) -> Any:
    pairs = [(shifts, dims)] if isinstance(shifts, int) else zip(shifts, dims, strict=True)
    for shift, dim in pairs:
        size = x.shape[dim]
        if shift % size:
            x = ops.cat((x.narrow(dim, size - shift % size, shift % size), x.narrow(dim, 0, size - shift % size)), dim)
    return x


def _tril(x: Any, diagonal: int = 0) -> Any:
    kept = Tensor(np.tril(np.ones(x.shape[-2:], bool), diagonal))
    return ops.logical_and(x, kept) if x.dtype == ms.bool_ else x * kept.astype(x.dtype)


def _einsum(equation: str, *tensors: Any) -> Any:
    """Multiply elements of two tensors and add up, as most of MindOne's models ask for it."""
    taken, made = equation.replace(" ", "").split("->")
    letters = [*made, *sorted({*taken} - {*made, ","})]
    total: Any = 1
    for one, names in zip(tensors, taken.split(","), strict=True):
        own = [letter for letter in letters if letter in names]
        turned = ops.transpose(one, tuple(map(names.index, own)))
        total = total * turned.reshape(tuple(turned.shape[own.index(x)] if x in own else 1 for x in letters))
    added = tuple(range(len(made), len(letters)))
    return ops.sum(total, added) if added else total


def _layer_norm(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    axes = tuple(range(x.ndim - len(tuple(normalized_shape)), x.ndim))
    centred = x - ops.mean(x, axes, True)
    y = centred * ops.rsqrt(ops.mean(centred * centred, axes, True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _rms_norm(x: Any, gamma: Any, epsilon: float = 1e-6) -> Any:
    scale = ops.rsqrt(ops.mean(x * x, -1, True) + epsilon)
    return x * scale * gamma, scale


def _batch_norm(self: Any, x: Any) -> Any:
    shape = (1, -1, *(1,) * (x.ndim - 2))
    mean, var, weight, bias = (
        one.reshape(shape) for one in (self.running_mean, self.running_var, self.weight, self.bias)
    )
    return (x - mean) * ops.rsqrt(var + self.eps) * weight + bias


def _gelu(x: Any, *, approximate: str = "none") -> Any:
    return ops.gelu(x, approximate="tanh") if approximate == "tanh" else x * 0.5 * (1 + ops.erf(x / math.sqrt(2.0)))


def _conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    return ops.conv2d(x, weight, bias, stride, "pad", padding, dilation, groups)


def _conv1d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    stride, padding, dilation = (one if isinstance(one, int) else one[0] for one in (stride, padding, dilation))
    y = _conv2d(x.expand_dims(2), weight.expand_dims(2), bias, (1, stride), (0, padding), (1, dilation), groups)
    return y.squeeze(2)


def _convolved(called: Callable[..., Any]) -> Callable[..., Any]:
    def construct(self: Any, x: Any) -> Any:
        return called(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    return construct


def _interpolate(x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", **how: Any) -> Any:
    if size is None:
        factors = scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor,) * (x.ndim - 2)
        size = tuple(int(extent * factor) for extent, factor in zip(x.shape[2:], factors, strict=True))
    size = (size,) * (x.ndim - 2) if isinstance(size, int) else tuple(map(int, size))
    return ops.interpolate(
        x, size=size, mode=mode, **({} if mode == "nearest" else {"align_corners": how["align_corners"]})
    )


def _nonzero(x: Any, as_tuple: bool = False) -> Any:
    found = np.nonzero(x.asnumpy())
    return tuple(map(Tensor, found)) if as_tuple else Tensor(np.stack(found, 1))


def _drawn(self: Any, *_: Any, **__: Any) -> Any:
    """Fill a parameter, for whichever initializer: values are copied from the reference."""
    values = np.random.default_rng(0).standard_normal(self.shape) * 0.02
    if isinstance(self, np.ndarray):
        self[...] = values
    else:
        self.assign_value(Tensor(values, self.dtype))
    return self


def _filled(value: float) -> Callable[..., Any]:
    def fill(self: Any, *_: Any) -> Any:
        self.assign_value(Tensor(np.full(self.shape, value), self.dtype))
        return self

    return fill


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "stack": _stack,
    "zeros_like": lambda x, dtype=None: ops.zeros(x.shape, dtype or x.dtype),
    "ones_like": lambda x, dtype=None: ops.ones(x.shape, dtype or x.dtype),
    "full": _full,
    "full_like": lambda x, fill_value, dtype=None: ops.full(x.shape, fill_value, dtype=dtype or x.dtype),
    "empty": lambda *size, dtype=None: ops.zeros(
        size[0] if isinstance(size[0], tuple | list) else size, dtype or ms.float32
    ),
    "arange": _arange,
    "linspace": lambda start, end, steps, dtype=None: Tensor(np.linspace(start, end, steps), dtype or ms.float32),
    "repeat_interleave": lambda x, repeats, dim=None, **_: ops.repeat_interleave(x, repeats, dim),
    "cumsum": _cumsum,
    "gather": ops.gather_elements,
    "index_select": lambda x, dim, index: ops.gather(x, index, dim),
    "topk": _topk,
    "sort": _sort,
    "argsort": lambda x, dim=-1, descending=False, **_: _sort(x, dim=dim, descending=descending)[1],
    "argmax": lambda x, dim=None, keepdim=False: ops.argmax(x, dim, keepdim).astype(ms.int64),
    "nonzero": _nonzero,
    "norm": _norm,
    "tril": _tril,
    "outer": lambda a, b: a.expand_dims(1) * b.expand_dims(0),
    "roll": _roll,
    "mm": ops.matmul,
    "addmm": lambda bias, x, weight, **_: ops.matmul(x, weight) + bias,
    "baddbmm": lambda x, a, b, *, beta=1, alpha=1: beta * x + alpha * ops.bmm(a, b),
    "einsum": _einsum,
    "logsumexp": ops.logsumexp,
    "clone": lambda x: x.copy() if x.dtype == ms.bool_ else x * 1,
}
"""Functions of mint that lack a kernel."""
OF_LAYERS: dict[str, Callable[..., Any]] = {
    "pad": lambda x, pad, mode="constant", value=0.0: ops.pad(
        x, tuple(pad), mode, value if mode == "constant" else None
    ),
    "one_hot": _one_hot,
    "normalize": lambda x, p=2.0, dim=1, eps=1e-12: x / ops.maximum(_norm(x, p, dim, True), Tensor(eps, x.dtype)),
    "log_softmax": lambda x, dim=None, dtype=None: ops.log_softmax(x if dtype is None else x.astype(dtype), dim),
    "leaky_relu": ops.leaky_relu,
    "logsigmoid": lambda x: -ops.softplus(-x),
    "unfold": ops.unfold,
    "gelu": _gelu,
    "embedding": lambda ids, weight, *_, **__: ops.gather(weight, ids, 0),
    "layer_norm": _layer_norm,
    "conv1d": _conv1d,
    "conv2d": _conv2d,
    "interpolate": _interpolate,
}
"""Of mint.nn.functional."""
LAYERS: dict[str, Callable[..., Any]] = {
    "Embedding": lambda self, ids: ops.gather(self.weight, ids, 0),
    "LayerNorm": lambda self, x: _layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps),
    "Conv1d": _convolved(_conv1d),
    "Conv2d": _convolved(_conv2d),
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "GELU": lambda self, x: _gelu(x, approximate=self.approximate),
    "AdaptiveAvgPool2d": lambda self, x: ops.adaptive_avg_pool2d(x, self.output_size),
}
"""Of mint.nn: what each computes, in evaluation mode."""


def install() -> None:
    """Put the functions and layers in place."""
    for home, known in ((mint, FUNCTIONS), (F, OF_LAYERS)):
        for name, made in known.items():
            setattr(home, name, made)
    for name, construct in LAYERS.items():
        getattr(mint.nn, name).construct = construct
    ops.rms_norm = _rms_norm
    Tensor.clone, Tensor.nonzero = FUNCTIONS["clone"], _nonzero
    for cls in (Tensor, ms.Parameter):
        cls.normal_ = cls.uniform_ = _drawn
        cls.zero_, cls.fill_ = _filled(0.0), lambda self, value: _filled(float(value))(self)
    for name in ("_init_random_normal_inplace", "_init_random_uniform_inplace", "_init_truncated_normal_inplace"):
        setattr(initializers, name, lambda *given: _drawn(given[-1]))
