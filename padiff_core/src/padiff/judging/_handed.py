"""Know what a script, or an optimizer's own clipping, made of gradients between where they arrived and the step."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from padiff.judging._sizes import Held, held
from padiff.numerics import ACCUMULATED, epsilon_of
from padiff.trace import Summary, Trace


@attrs.frozen
class Handed:
    """What an optimizer stepped one parameter with, beside what had arrived there."""

    times: float
    """Its norm by that of what arrived; 1 where that is rounding."""
    largest: float
    """The largest element's size."""
    cut: bool
    """Whether elements of both signs have exactly that size, of less than had arrived: values are clipped there."""
    eps: float

    def differs(self, other: Handed) -> bool:
        """Return whether the other side's optimizer was given another share of what arrived."""
        return abs(self.times - other.times) > _rounding(self, other) * max(self.times, other.times)


def handed_of(trace: Trace) -> dict[str, Handed]:
    """Return what is known of the gradients that were handed to optimizers, by the paths of parameters."""
    found = {}
    for path, key in trace.handed.items():
        known, arrived = trace.summaries.get(key), _norm(held(trace, trace.parameter_gradients.get(path)))
        if known is not None and known.norm is not None and arrived:
            eps = epsilon_of(known.dtype)
            times = known.norm / arrived
            low, high = known.low or 0.0, known.high or 0.0
            one = Handed(times, max(-low, high), times < 1 and high == -low > 0, eps)
            same = abs(times - 1) <= _rounding(one, one)
            found[path] = attrs.evolve(one, times=1.0, cut=False) if same else one
    return found


def told_of(handed: dict[str, Handed]) -> dict[str, Any]:
    """Return what is said of all parameters: the least and the largest share, and what values are clipped at."""
    times = [float(f"{one.times:.4g}") for one in handed.values()]
    largest = max(one.largest for one in handed.values())
    cut = any(one.cut and one.largest == largest for one in handed.values())
    return {"least": min(times), "most": max(times), "limit": largest if cut else None}


def _rounding(ours: Handed, theirs: Handed) -> float:
    return ACCUMULATED(max(ours.eps, theirs.eps))


def _norm(value: Held) -> float:
    if isinstance(value, Summary):
        return value.norm or 0.0
    if value is None:
        return 0.0
    found = float(np.linalg.norm(value.astype(np.float64)))
    return found if math.isfinite(found) else 0.0
