"""Tell what optimizers were given of the gradients that arrived: all of each, or a share, which clipping leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from padiff.judging._sizes import Held, held
from padiff.numerics import ACCUMULATED, FLOORS, epsilon_of
from padiff.trace import Summary, Trace


@attrs.frozen
class GivenGradient:
    """What an optimizer stepped one parameter with, beside what had arrived there."""

    times: float
    """Its norm by that of what arrived; 1 where that is rounding."""
    largest: float
    """The largest element's size."""
    cut: bool
    """Whether elements of both signs have exactly that size, of less than had arrived: values are clipped there."""
    eps: float

    def differs(self, other: GivenGradient, noise: float = 0.0) -> bool:
        """Return whether the other side's optimizer was given another share of what arrived, there with a ``noise``."""
        bound = max(_rounding(self, other), FLOORS * noise)
        return abs(self.times - other.times) > bound * max(self.times, other.times)


def given_gradients(trace: Trace, earlier: Sequence[Trace] = ()) -> dict[str, GivenGradient]:
    """Return what is known of the gradients that were handed to optimizers, by the paths of parameters.

    What arrived in ``earlier`` steps, in which no optimizer stepped, counts as well.
    """
    found, kept = {}, {**trace.parameter_gradients, **trace.arrived}
    for path, key in trace.handed.items():
        known = trace.summaries.get(key)
        before = [held(one, one.parameter_gradients[path]) for one in earlier if path in one.parameter_gradients]
        arrived = _norm_of(_sum([*before, held(trace, kept.get(path))]))
        if known is not None and known.norm is not None and arrived:
            eps = epsilon_of(known.dtype)
            times = known.norm / arrived
            low, high = known.low or 0.0, known.high or 0.0
            one = GivenGradient(times, max(-low, high), times < 1 and high == -low > 0, eps)
            same = abs(times - 1) <= _rounding(one, one)
            found[path] = attrs.evolve(one, times=1.0, cut=False) if same else one
    return found


def _sum(values: Sequence[Held]) -> Held:
    """Return the sum of what arrived; of several summaries, of which no norm of a sum is known, nothing."""
    if len(values) == 1:
        return values[0]
    arrays = [one for one in values if isinstance(one, np.ndarray)]
    if len(arrays) < sum(one is not None for one in values):
        return None
    return sum((one.astype(np.float64) for one in arrays[1:]), arrays[0].astype(np.float64)) if arrays else None


def shares_of(handed: dict[str, GivenGradient]) -> dict[str, Any]:
    """Return what is said of all parameters: the least and the largest share, and what values are clipped at."""
    times = [float(f"{one.times:.4g}") for one in handed.values()]
    largest = max(one.largest for one in handed.values())
    cut = any(one.cut and one.largest == largest for one in handed.values())
    return {"least": min(times), "most": max(times), "limit": largest if cut else None}


def _rounding(ours: GivenGradient, theirs: GivenGradient) -> float:
    return ACCUMULATED(max(ours.eps, theirs.eps))


def _norm_of(value: Held) -> float:
    if value is None:
        return 0.0
    found = value.norm or 0.0 if isinstance(value, Summary) else float(np.linalg.norm(value.astype(np.float64)))
    return found if math.isfinite(found) else 0.0
