"""Measure what code rounds that casts to a fixed type, whatever it is lifted to: a norm that computes in float32.

Such a call rounds in float64 too, by as much as its type does. How much that is shows in its response to disturbances
of what it is fed: what is smooth moves with them in a line, so that f(+d) - 2 f(0) + f(-d) all but vanishes, while each
of the three is rounded by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Reader
from padiff.judging._replays import PairReplays
from padiff.numerics import CAST, FLOORS, JITTER, JITTERS, Array, difference
from padiff.report import SIDES

_OF_THREE = 6.0**0.5
"""The errors of f(+d), f(0) twice and f(-d) together, where each is 1."""
_EPSILONS = (1.0, 8.0)
"""How much functions are disturbed. What rounding moves is moved by as much more as they are; what is a step is not."""
_SMOOTH = 1 / 8
"""How far out of a line what moves in one may be, against how far it moves."""


class Narrow:
    """What calls round in float64, since they cast to a narrower type."""

    def __init__(self, runs: Callable[..., Any], replays: PairReplays) -> None:
        self._runs = runs
        self._replays = replays

    def explains(self, wide: float, pair: Pair, read: Reader, *, backward: bool, eps: float) -> dict[str, Any] | None:
        """Return which side's casts, and what they round, explain a difference in float64; None where none does."""
        for ours in (True, False):
            noise = self._noise(pair, read, eps, ours=ours, backward=backward)
            if noise is not None and wide <= FLOORS * noise:
                return {"side": SIDES[not ours], "noise": noise}
        return None

    def _noise(self, pair: Pair, read: Reader, eps: float, *, ours: bool, backward: bool) -> float | None:
        """Return what one side's casts round, relative L2; None where it has none."""
        runs = self._runs(pair, "float64", backward=backward)
        plain = runs.reference if ours else runs.candidate
        still = None if plain is None else read(plain, ours)
        if still is None:
            return None
        moved = self._disturbed(pair, read, JITTER, ours=ours, backward=backward)
        if moved is None or JITTER / 100 < difference(still, moved).rel_l2 < JITTER * 100:
            return None
        far = self._disturbed(pair, read, JITTERS[-1], ours=ours, backward=backward)
        if far is not None and far.shape == still.shape and difference(still, far).equal:
            # Of no input: what the functions are off by tells how much is rounded.
            return max(CAST(eps) / FLOORS, self._rounded(pair, read, still, ours=ours, backward=backward))
        noise = 0.0
        for jitter in JITTERS:
            up, down = (self._disturbed(pair, read, by, ours=ours, backward=backward) for by in (jitter, -jitter))
            if up is None or down is None:
                return None
            size = float(np.linalg.norm(still.astype(np.float64)))
            line, bend = (float(np.linalg.norm(one)) for one in (up - down, up + down - 2.0 * still))
            noise = max(bend / _OF_THREE / size, CAST(0.0) / FLOORS) if size else 0.0
            if bend <= _SMOOTH * line:
                break
        return noise

    def _rounded(self, pair: Pair, read: Reader, still: Array, *, ours: bool, backward: bool) -> float:
        """Return how far a value moves where functions are off by an epsilon of their types; 0 where nothing tells."""
        moved = []
        for epsilons in _EPSILONS:
            condition = {"dtype": "float64", "rounding": epsilons, "backward": backward}
            alone = self._replays.of_side(pair, ours, condition)
            found = None if alone is None else read(alone, ours)
            if found is None or found.shape != still.shape:
                return 0.0
            moved.append(difference(still, found).rel_l2 / epsilons)
        return moved[0] if max(moved) <= 2 * min(moved) else 0.0

    def _disturbed(self, pair: Pair, read: Reader, jitter: float, *, ours: bool, backward: bool) -> Array | None:
        condition = {"dtype": "float64", "jitter": jitter, "backward": backward}
        alone = self._replays.of_side(pair, ours, condition)
        found = None if alone is None else read(alone, ours)
        return None if found is None else found.astype(np.float64)
