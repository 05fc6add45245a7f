"""Every threshold of padiff: how far apart two values may be for no other reason than rounding.

Each is a function of the machine epsilon of the value's own type, with the measurement behind it beside it. Errors are
relative L2, ||candidate - reference|| / ||reference||, unless another measure is named. docs/how_it_works.md shows this
table; ``python -m padiff.numerics`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf, isfinite, log10, sqrt
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from padiff.numerics._dtypes import Array, numpy_dtype
from padiff.numerics._figures import Difference

FLOAT32 = float(np.finfo(np.float32).eps)
FLOORS = 3.0
"""A native error of so many noise floors is rounding: the reference's own error there, against itself in float64.
28 bugs in 10 rewrites of a Llama-like model: all found, no false alarm."""
ACCUMULATION = 16.0
"""Whole models are apart by rounding up to so many times the reference's own response to disturbances of one epsilon at
every call. Aligned pairs of torchvision and paddle.vision show 0.6 to 5.3 times, a dropout of one side 10,000 and more:
benchmarks/soundness.py."""
VANISHES = 30.0
"""A difference of whole models that is so many times smaller in float64 was rounding: aligned pairs show a factor of
10^5 and more, kernels that hold constants in float32 at least 100, and a fault 1."""
SHOWN = 1e-5
"""What a parameter makes of what a region gives, relative L2, and an element of what the largest one makes, where it
counts for what is proven of the region: an error of a tenth shows in float64 then. Of a layer it is 0.01 and more, of
one behind a gate of 1e-6 (ConvNeXt's before training) less."""
BORNE_OUT = 1e-3
"""By how much what gradients tell of a small change of weights may miss what values do, in sizes of that change: right
ones miss it by 1e-7 in float64, those that a quantizer sends straight through by all of it."""
JITTERS = (2.0**-36, 2.0**-7)
"""Relative disturbances that show whether a value follows from what is disturbed: one that comes through float64 and
through nothing narrower, which most values need no more than; one above bfloat16's epsilon."""
_DRAWS = range(4, 33, 4)
_NARROW = {11: "float16", 8: "bfloat16"}
"""Digits of a significand -> the type that has so many."""
_ENOUGH, _LAST = 16, 0.25
"""How many values, and what share of them that needs the last digit, tell in which type they were rounded."""
_COARSE = 2.0**-13
"""Machine epsilon above which rounding hides faults."""


@attrs.frozen
class Threshold:
    """A bound on an error, as a function of the machine epsilon of the value's type."""

    name: str
    formula: str
    bound: Callable[[float], float]
    meaning: str
    measured: str

    def __call__(self, eps: float) -> float:
        """Return the bound for a machine epsilon; dimensionless."""
        return self.bound(eps)


NEGLIGIBLE = Threshold(
    "NEGLIGIBLE",
    "4 ε",
    lambda eps: 4 * eps,
    "a local error that needs no settling; inputs that are the same on both sides",
    "aligned float32 calls show up to 2.5 ε",
)
NEGLIGIBLE_LIBRARY = Threshold(
    "NEGLIGIBLE_LIBRARY",
    "32 ε",
    lambda eps: 32 * eps,
    "the same for a framework's own module of one kind with equal hyper-parameters",
    "long sums show up to 8 ε, and a fault in such a module is none of the port's",
)
NEGLIGIBLE_SENT = Threshold(
    "NEGLIGIBLE_SENT",
    "8 ε",
    lambda eps: 8 * eps,
    "the same for the gradient that one call's code sends",
    "aligned float32 calls show up to 4.2 ε, with MindSpore 5; a GELU's tanh form in its flat ends 11 ε",
)
NEGLIGIBLE_GRADIENT = Threshold(
    "NEGLIGIBLE_GRADIENT",
    "128 ε",
    lambda eps: 128 * eps,
    "the same for the gradients of parameters, and those that whole models give",
    "what is wrong there and in no value's gradient (a hook of a parameter) is gross",
)
ELEMENT = Threshold(
    "ELEMENT",
    "64 ε log10(n)",
    lambda eps: 64 * eps,
    "the same as NEGLIGIBLE for the largest error of one element, against the root mean square of all n",
    "the tail of a normal distribution of errors; scaled with the one of the three that applies",
)
TOGETHER = Threshold(
    "TOGETHER",
    "0.5 ε of float32",
    lambda _: 0.5 * FLOAT32,
    "two sides that were run in float64 compute the same",
    "aligned calls show 1e-13, and half an epsilon of float32 where a kernel rounds one constant to it",
)
CONSTANT = Threshold(
    "CONSTANT",
    "6 ε of float32",
    lambda _: 6 * FLOAT32,
    "the same where no hyper-parameter differs",
    "kernels hold an epsilon, a momentum or a slope in float32, whatever they compute in: MindSpore's softplus 6e-7",
)
MERGING = Threshold(
    "MERGING",
    "ε + 2 ε of float32",
    lambda eps: eps + 2 * FLOAT32,
    "by how much an element of merged weights is moved, to see what their rounding makes of a value",
    "merged in float32 and cast: a layer with a norm folded in is off by 0.4 ε, two multiplied by 2.5",
)
ROUNDING = Threshold(
    "ROUNDING",
    "16 ε",
    lambda eps: 16 * eps,
    "a native error that rounding explains where the noise floor happened to be low",
    "",
)
CAST = Threshold(
    "CAST",
    "ε / 64, at least 16 ε of float32",
    lambda eps: max(eps / 64, 16 * FLOAT32),
    "the same of a table that code makes of no input, in a fixed narrower type even in a float64 model",
    "rotary angles of 2,048 positions that float32 rounds once: 3e-5",
)
LOST = Threshold(
    "LOST",
    "8 ε of bfloat16",
    lambda _: 8 * 2.0**-7,
    "a local error that no narrower type explains where both sides are together in float64: digits are lost",
    "in bfloat16 a linear layer is off by 2.8e-3, four of a transformer's by 6.5e-3, a sharp softmax by 1.9e-2; -1e9 "
    "added to all scores makes their softmax uniform, 0.2 and more off",
)
UNSETTLED = Threshold(
    "UNSETTLED",
    "min(64 ε, √ε)",
    lambda eps: min(64 * eps, sqrt(eps)),
    "a local error that is taken for rounding where no side can run in a wider type",
    "",
)
LOSS = Threshold(
    "LOSS",
    "min(96 ε, √ε / 3)",
    lambda eps: min(96 * eps, sqrt(eps) / 3),
    "relative error of a loss that was computed from equal outputs",
    "sums of a batch in another order",
)
EXACT = Threshold(
    "EXACT",
    "8 ε",
    lambda eps: 8 * eps,
    "weights after one step of the same optimizer from equal gradients; large numbers of a mask; an "
    "arrangement of weights or calls that none outdoes; what one call makes of the same in a recorded run, in a coarse "
    "type",
    "by hand in one call, in bfloat16, twelve layers of a transformer are off by 1.3 ε, an LSTM of 100 steps by 0.5 ε",
)
ACCUMULATED = Threshold(
    "ACCUMULATED",
    "√ε / 3, at least 16 ε of float32",
    lambda eps: max(sqrt(eps) / 3, 16 * FLOAT32),
    "a gradient that every call gets right by itself, an optimizer's step (which places its epsilon elsewhere)",
    "aligned float32 models show up to 4e-5; MindSpore sums a LayerNorm's gradients in float32 in float64 models too",
)
SAME = Threshold(
    "SAME",
    "3 √ε",
    lambda eps: max(3 * sqrt(eps), 6 * FLOAT32),
    "two tensors of free runs are one value; an arrangement of weights or calls is the right one",
    "another value is off by 0.1 and more, accumulated rounding in float32 by up to 3e-4",
)
RANDOM = Threshold(
    "RANDOM",
    "√ε",
    sqrt,
    "two runs of one call with other seeds; what is further apart is random",
    "a dropout of 1 % moves values by 0.14; too low a bound would excuse faults where kernels sum in any order",
)
ORDER = Threshold(
    "ORDER",
    "0.5",
    lambda _: 0.5,
    "a value read in the right order of axes, behind a fault; and the share of the error in any other order",
    "unrelated values are off by 1.4",
)
GROSS = Threshold(
    "GROSS",
    "32 √ε",
    lambda eps: 32 * sqrt(eps),
    "differs without settling, enough to see whether the matching is right",
    "1.1e-2 in float32",
)
SETTING = Threshold(
    "SETTING",
    "eps, at least 2^-30",
    lambda eps: max(eps, 2.0**-30),
    "relative difference of two hyper-parameters that are one number; eps is float32's for rates of chance, else 0",
    "0.1 in float32 and in float64 is 1.5e-8 apart, and is taken for another number; printed digits are 9; rates of "
    "stochastic depth that torch.linspace and numpy.linspace make, 1.0e-7",
)

THRESHOLDS = (
    NEGLIGIBLE,
    NEGLIGIBLE_LIBRARY,
    NEGLIGIBLE_SENT,
    NEGLIGIBLE_GRADIENT,
    ELEMENT,
    TOGETHER,
    CONSTANT,
    MERGING,
    ROUNDING,
    CAST,
    LOST,
    UNSETTLED,
    LOSS,
    EXACT,
    ACCUMULATED,
    SAME,
    RANDOM,
    ORDER,
    GROSS,
    SETTING,
)


def disturbances(eps: float) -> list[float]:
    """Return the relative disturbances that draw a call's rounding anew: by more than an epsilon, by little more.

    The exponential of a sum of 13 terms is one number that rounds by 0 to 30 epsilons. Of 2,000 right ports that sum
    in another order 4.8 % are further off than 16 epsilons and three times what the reference happened to round there,
    and 0.7 % than three times what it rounds in the mean of these.
    """
    return [factor * eps for factor in _DRAWS]


@cache
def epsilon(dtype: np.dtype[Any]) -> float:
    """Return the machine epsilon of a floating dtype, 0 for exact ones."""
    if dtype.kind in "iub":
        return 0.0
    info: Any = ml_dtypes.finfo  # numpy's knows no float8, though one of them says that its kind is "f"
    return float(info(dtype).eps)


def epsilon_of(*dtypes: str) -> float:
    """Return the largest machine epsilon among dtypes, given by numpy's or ml_dtypes' names; 0 for exact ones."""
    return max((epsilon(numpy_dtype(name)) for name in dtypes), default=0.0)


def epsilon_of_number(value: float) -> float:
    """Return the machine epsilon of the narrowest type that holds a number exactly: was it rounded to that?"""
    known = (numpy_dtype(name) for name in (*_NARROW.values(), "float32", "float64"))
    with np.errstate(over="ignore"):
        return max((epsilon(one) for one in known if float(np.asarray(value, one)) == value), default=0.0)


def narrowest(few: Array) -> str | None:
    """Return the type, narrower than float32, that a sample of values was rounded to; None where to none.

    Half of what is rounded to a type needs its last digit, in the mean; whole numbers, and powers of two, need fewer.
    """
    values = few[np.isfinite(few) & (few != 0)]
    if values.size < _ENOUGH:
        return None
    digits = np.abs(np.frexp(values)[0] * 2.0**53).astype(np.int64)
    needed = 53 - np.log2(digits & -digits)
    name = _NARROW.get(int(needed.max()))
    return name if np.mean(needed == needed.max()) > _LAST else None


def disturbed(values: Array, share: float, seed: tuple[int, int]) -> Array:
    """Return values of which each is moved by a random share of up to so much, one way or the other."""
    work: Any = np.float64 if values.dtype == np.float64 else np.float32
    exact: Array = values.astype(work, copy=False)
    moved: Array = np.random.Generator(np.random.SFC64(seed)).random(values.shape, work)
    moved -= 0.5
    moved *= 2 * share
    moved *= exact
    moved += exact
    return moved.astype(values.dtype, copy=False)


def is_whole(values: Array) -> bool:
    """Return whether all values are whole numbers, as a mask's are."""
    return np.array_equal(values, values.round())


def is_coarse(eps: float) -> bool:
    """Return whether a type is so narrow that its rounding hides faults: every difference is settled in float64."""
    return eps > _COARSE


def relative(apart: Difference, scale: float = 0.0) -> float:
    """Return the relative L2 error, against ``scale`` (a root mean square) where that is more than the reference's."""
    if apart.equal or not scale > apart.scale:
        return apart.rel_l2
    return apart.rel_l2 * apart.scale / scale if isfinite(apart.rel_l2) else apart.max_abs / scale


def is_suspect(apart: Difference, dtype: np.dtype[Any], scale: float = 0.0, negligible: Threshold = NEGLIGIBLE) -> bool:
    """Return whether a local error is more than the format's own rounding explains at first sight.

    ``scale`` is the magnitude (root mean square) of what the value was computed from, where the value itself may be
    zero but for rounding: the gradient of a bias that a normalisation cancels.
    """
    if apart.equal:
        return False
    eps = epsilon(dtype)
    if eps == 0 or is_coarse(eps) or not apart.shape_equal or apart.nan_mismatch:
        return True
    share = negligible(eps) / NEGLIGIBLE(eps)
    bound = share * ELEMENT(eps) * max(apart.scale, scale) * max(1.0, log10(max(apart.count, 1)))
    error = relative(apart, scale)
    return not error <= negligible(eps) or not apart.max_abs <= (inf if bound != bound else bound)


def table() -> str:
    """Return all thresholds as a table in Markdown, with their values for three types."""
    types = ("float64", "float32", "bfloat16")
    lines = [
        f"| threshold | formula | {' | '.join(types)} | what it bounds, and what was measured |",
        "|---|---|---|---|---|---|",
    ]
    for one in THRESHOLDS:
        values = " | ".join(f"{one(epsilon_of(name)):.1e}" for name in types)
        measured = f"; {one.measured}" if one.measured else ""
        lines.append(f"| `{one.name}` | {one.formula} | {values} | {one.meaning}{measured} |")
    return "\n".join(lines)
