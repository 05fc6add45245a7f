"""Measure what one side's call rounds on inputs close by: of a few numbers its own error may be small by luck."""

from __future__ import annotations

import math
from collections.abc import Callable

from padiff.alignment import Pair
from padiff.forcing import Reader
from padiff.judging._replays import PairReplays
from padiff.numerics import Array, disturbances

Apart = Callable[[Array, Array], float]


def rounding_nearby(
    replays: PairReplays, pair: Pair, read: Reader, apart: Apart, eps: float, *, ours: bool, backward: bool
) -> float:
    """Return the error of one side's call in its own type, against itself in float64, in the mean of some inputs.

    That is the root of the mean square, as if the value had so many times the elements; 0 where it does not run so.
    """
    errors = []
    for jitter in disturbances(eps):
        condition = {"jitter": jitter, "backward": backward}
        runs = (replays.of_side(pair, ours, {"dtype": dtype, **condition}) for dtype in ("float64", None))
        wide, own = (None if run is None else read(run, ours) for run in runs)
        if wide is None or own is None:
            return 0.0
        errors.append(apart(wide, own))
    return math.sqrt(sum(error**2 for error in errors) / len(errors))
