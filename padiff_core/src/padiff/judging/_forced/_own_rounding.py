"""Measure what one side's call rounds by itself: in a fixed type, or on inputs close by.

Code may make a value of no input in a fixed type, whatever it is lifted to: a table of angles. Such code rounds in
float64 too, by as much as its type does. No disturbance of what it is fed moves the value; how much is rounded shows in
what the functions that make it are off by.

A framework's own kernel may compute in a narrower type than it is given and gives (MindSpore's log_softmax). It shows:
all that it gives of other values is held by the narrower type. That is none of the port's; a cast in its code, which
gives the narrower type itself, is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from padiff.judging._forced._question import Question
from padiff.judging._forced._replays import PairReplays
from padiff.numerics import (
    CAST,
    FLOORS,
    GROSS,
    JITTERS,
    LOST,
    SAME,
    Array,
    difference,
    disturbances,
    epsilon_of,
    is_coarse,
)
from padiff.report import SIDES, Figures

_EPSILONS = (1.0, 8.0)
"""How much functions are disturbed. What rounding moves is moved by as much more as they are; what is a step is not."""
_DRAWS = 4


class Narrow:
    """What calls round in float64, since they make tables in a narrower type."""

    def __init__(self, runs: Callable[..., Any], replays: PairReplays) -> None:
        self._runs = runs
        self._replays = replays

    def explains(self, asked: Question, wide: float, *, small: bool = False) -> dict[str, Any] | None:
        """Return which side's table or kernels, and what it rounds, explains a difference in float64; or None.

        None explains a gross one, nor does gross noise explain any, unless natively all is rounding (``small``): who
        rounds so coarsely is to be told.
        """
        if wide > GROSS(asked.eps) and not small:
            return None
        for ours in (True, False):
            noise = self._noise(asked, wide, ours=ours)
            if noise is not None and wide <= FLOORS * noise and (small or noise <= GROSS(asked.eps)):
                return {"side": SIDES[not ours], "noise": noise}
        return None

    def loses_digits(self, asked: Question, figures: Figures) -> bool:
        """Return whether the candidate's code by itself is further off than its type makes it, or a narrower one.

        The reference's keeps its digits, as its noise floor tells: what is zeros but for rounding is no measure.
        """
        seen = (leaf for call in asked.pair.candidate.subtree() for leaf in (*call.inputs, *call.outputs))
        coarse = max(filter(is_coarse, (asked.eps, *(epsilon_of(leaf.dtype) for leaf in seen))), default=0.0)
        most = SAME(coarse) if coarse else LOST(asked.eps)
        if figures.rel_l2 <= most or not (figures.floor or 0.0) <= most:
            return False
        wide, own = (self._runs(asked.pair, dtype).values(asked.read)[1] for dtype in ("float64", None))
        wide = asked.truth if wide is None else wide  # it does not run so with the casts in its code
        if wide is None or own is None or wide.shape != own.shape:
            return False
        return not difference(wide, own).rel_l2 <= most

    def _noise(self, asked: Question, wide: float, *, ours: bool) -> float | None:
        """Return what one side rounds, relative L2: in its kernels, or all that follows from no input; else None."""
        still = self._runs(asked.pair, "float64", backward=asked.backward).values(asked.read)[not ours]
        still = self._wide(asked, ours=ours) if still is None else still
        if still is None:
            return None
        kernels = self.of_kernels(asked, ours=ours)
        if kernels or wide > GROSS(asked.eps):
            return kernels or None
        if any(self._moved(asked, still, ours=ours, jitter=jitter) != 0.0 for jitter in JITTERS):
            return None
        # Of no input: what the functions are off by tells how much is rounded.
        return max(CAST(asked.eps) / FLOORS, self._rounded(asked, wide, still, ours=ours))

    def _rounded(self, asked: Question, wide: float, still: Array, *, ours: bool) -> float:
        """Return how far a value moves where functions are off by an epsilon of their types; 0 where nothing tells."""
        found = []
        for epsilons in _EPSILONS:
            found.append(self._moved(asked, still, ours=ours, rounding=epsilons) / epsilons)
            if wide > FLOORS * found[0]:
                break  # too little to explain the difference, whatever more of it does
        return found[0] if max(found) <= 2 * min(found) < math.inf else 0.0

    def of_kernels(self, asked: Question, *, ours: bool) -> float:
        """Return what functions round that compute in float32 in a float64 model, in the mean of some draws; or 0.

        Kernels that do not say so are told by values that a float32 does not hold, which no recorded ones are. Of a
        value that is finer than a float32 nothing is returned: what casts it is to be told.
        """
        if asked.eps < epsilon_of("float32"):
            return 0.0
        still = self._wide(asked, ours=ours, jitter=JITTERS[0])
        found: list[float] = []
        while still is not None and len(found) < _DRAWS:
            found.append(self._moved(asked, still, ours=ours, jitter=JITTERS[0], kernels=len(found) + 1))
            if not 0.0 < found[-1] < math.inf:
                return 0.0
        return math.sqrt(sum(one**2 for one in found) / _DRAWS)

    def _moved(self, asked: Question, still: Array, *, ours: bool, **condition: Any) -> float:
        """Return how far a side's value moves in float64 under a condition, relative L2; inf where that is unknown."""
        found = self._wide(asked, ours=ours, **condition)
        return math.inf if found is None else difference(still, found).rel_l2

    def _wide(self, asked: Question, *, ours: bool, **condition: Any) -> Array | None:
        """Return a side's value in float64 under a condition; where it does not run so, without its code's casts."""
        wide = {"dtype": "float64", **condition}
        found = self._replays.value(asked, ours, wide)
        return self._replays.value(asked, ours, {**wide, "uncast": 1.0}) if found is None else found


def rounding_nearby(replays: PairReplays, asked: Question, *, ours: bool) -> float:
    """Return the error of one side's call in its own type, against itself in float64, in the mean of some inputs.

    That is the root of the mean square, as if the value had so many times the elements; 0 where it does not run so.
    """
    errors = []
    for jitter in disturbances(asked.eps):
        wide, own = (replays.value(asked, ours, {"dtype": dtype, "jitter": jitter}) for dtype in ("float64", None))
        if wide is None or own is None:
            return 0.0
        errors.append(asked.error_between(wide, own))
    return math.sqrt(sum(error**2 for error in errors) / len(errors))
