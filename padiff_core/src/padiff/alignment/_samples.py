"""Tell by samples of two free runs whether tensors are the same."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from padiff.numerics import SAME, difference, epsilon_of
from padiff.trace import Call, Leaf, Trace

_LARGE = 1e3
"""Norm of a sample above which infinities or a mask may be among its elements; what is as far below zero is masked."""


class FreeRuns:
    """What two runs show of their tensors: a few elements of each."""

    def __init__(self, reference: Trace, candidate: Trace) -> None:
        self._samples = reference.samples, candidate.samples
        self._norms: tuple[dict[int, float], dict[int, float]] = {}, {}
        """By side: token -> norm of its sample."""

    def same(self, ours: Leaf, theirs: Leaf) -> bool:
        """Return whether two tensors hold the same; large numbers, such as a mask's, do not drown the others.

        What both mask is the same by whatever number: -inf here, -1e9 there.
        """
        x, y = self._samples[0].get(ours.token), self._samples[1].get(theirs.token)
        if x is None or y is None or x.shape != y.shape:
            return False
        bound = SAME(epsilon_of(ours.dtype, theirs.dtype))
        size, other = self._norm(0, ours, x), self._norm(1, theirs, y)
        if not size <= _LARGE:
            shown = ~((x <= -_LARGE) & (y <= -_LARGE))
            return bool(shown.any()) and difference(x[shown], y[shown]).rel_l2 <= bound
        if abs(size - other) > 2 * bound * size:
            return False  # a norm of the difference is at least the difference of the norms
        return float(np.linalg.norm(x - y)) <= bound * size

    def apart(self, ours: Leaf, theirs: Leaf) -> float:
        """Return how far two tensors are apart, relative L2, as far as samples show."""
        x, y = self._samples[0].get(ours.token), self._samples[1].get(theirs.token)
        return math.inf if x is None or y is None or x.shape != y.shape else difference(x, y).rel_l2

    def _norm(self, side: int, leaf: Leaf, values: NDArray[np.float64]) -> float:
        known = self._norms[side]
        if leaf.token not in known:
            known[leaf.token] = float(np.linalg.norm(values))
        return known[leaf.token]


def is_used(call: Call, trace: Trace) -> bool:
    """Return whether a gradient came to what a call gives; of a run that keeps none, whether one may come."""
    return any(leaf.token in trace.gradients if trace.gradients else leaf.differentiable for leaf in call.outputs)
