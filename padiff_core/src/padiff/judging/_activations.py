"""Recognise functions of one number that models apply to every element, by what they make of a few."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from padiff.numerics import FLOORS, Array, sample

_SAMPLED = 256
"""Elements by which a function is recognised: what is done to each shows in few."""
_SURE = 8
"""Values other than zero, and as many of either sign, without which a function is not recognised."""


def _sigmoid(x: Array) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _softplus(x: Array) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _erf(x: Array) -> Any:
    return np.array([math.erf(one) for one in x])


_FUNCTIONS: Mapping[str, Callable[[Array], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "relu squared": lambda x: np.maximum(x, 0) ** 2,
    "leaky_relu (slope 0.01)": lambda x: np.where(x > 0, x, 0.01 * x),
    "leaky_relu (slope 0.1)": lambda x: np.where(x > 0, x, 0.1 * x),
    "leaky_relu (slope 0.2)": lambda x: np.where(x > 0, x, 0.2 * x),
    "gelu (erf)": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu (tanh)": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "softplus": _softplus,
    "log_sigmoid": lambda x: -_softplus(-x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_sigmoid (slope 0.2)": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "exp": np.exp,
    "abs": np.abs,
    "square": np.square,
    "no function": lambda x: x,
}
"""Names as the frameworks have them -> what they make of numbers."""


def _log_softmax(x: Array) -> Any:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


_FUNCTIONS_OF_ROWS: Mapping[str, Callable[[Array], Any]] = {
    "log_softmax": _log_softmax,
    "softmax": lambda x: np.exp(_log_softmax(x)),
}
"""The same of functions of all numbers along an axis."""
HARMLESS_TWICE = frozenset({"log_softmax"})
"""Functions for a loss that make of what they made the same: a script that applies one once more does no harm."""


def named_function(value: Array, of: Array, bound: float) -> str | None:
    """Return which function makes a value of another one of its shape, up to a relative L2; None if none is known.

    Those of rows go along the last axis, or that of an image's channels.
    """
    with np.errstate(all="ignore"):
        made, x = sample(value, _SAMPLED), sample(of, _SAMPLED)
        for name, function in _FUNCTIONS.items():
            if _is_one(made, function(x), bound):
                return name if name != "no function" else None
        for axis in dict.fromkeys((value.ndim - 1, 1) if value.ndim > 3 else (value.ndim - 1,)):
            made, x = (_rows(one, axis) for one in (value, of))
            for name, function in _FUNCTIONS_OF_ROWS.items():
                if made.shape[-1:] > (1,) and _is_one(made, function(x), bound):
                    return name
    return None


def _is_one(value: Array, made: Array, bound: float) -> bool:
    return bool(np.linalg.norm(made - value) <= bound * np.linalg.norm(value))


def _rows(value: Array, axis: int) -> Array:
    """Return some rows of a value, along an axis."""
    rows = np.moveaxis(value, axis, -1).reshape(-1, value.shape[axis])
    return rows[:: max(1, len(rows) // _SAMPLED)].astype(np.float64)


def applied(values: tuple[Array, Array], to: Array, bound: float) -> tuple[str, str] | None:
    """Return which two functions make both values of a third, element by element; None where they are not known.

    All have one shape. ``bound`` is up to what relative L2 two values count as one.
    """
    x, ours, theirs = (sample(one, _SAMPLED) for one in (to, *values))
    if min(np.count_nonzero(x > 0), np.count_nonzero(x < 0)) < _SURE:
        return None
    nearest = [("", bound), ("", bound)]
    with np.errstate(all="ignore"):
        for name, function in _FUNCTIONS.items():
            made = function(x)
            for side, value in enumerate((ours, theirs)):
                apart = float(np.linalg.norm(made - value) / np.linalg.norm(value))
                # Of what is the same of these numbers the first counts: of what is not, what comes nearest.
                if apart <= bound and (not nearest[side][0] or apart < nearest[side][1] / FLOORS):
                    nearest[side] = name, apart
    first, second = (name for name, _ in nearest)
    return None if "" in (first, second) or first == second else (first, second)
