"""Tell where the recorded backward pass of two runs makes much of rounding: where it cancels, and at kinks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from padiff.forcing import Spot
from padiff.judging._meter import Meter
from padiff.judging._sizes import Size, held, magnitude
from padiff.numerics import CONSTANT, ORDER, UNSETTLED, VANISHES
from padiff.trace import Leaf

Magnified = Literal["gradients_cancelled", "at_a_kink"]
_FEW = 256
"""Of so many elements at most one may lie at a kink by chance."""
_KINKS = 2
"""Where an activation bends: at 0 and at 6."""


def magnified(spot: Spot, size: Size, meter: Meter) -> Magnified | None:
    """Return how the gradient of a call's input differs by rounding alone, however far; None where it does not."""
    pair = spot.pair
    asked = spot.what == "input" and not pair.candidate.children and size.close is None
    if not asked or not size.error > UNSETTLED(size.eps) > 0:
        return None
    return "gradients_cancelled" if _cancels(spot, size, meter) else "at_a_kink" if _bends(spot, size, meter) else None


def _cancels(spot: Spot, size: Size, meter: Meter) -> bool:
    """Return whether a gradient differs by no more than rounding in what it was summed up from.

    That is at least the gradient that came to the call, times how much larger what it gave is than what it took. Where
    the sum is far smaller than its parts (before a normalisation whose mean is the loss), what is left is rounding.
    """
    pair, (ours, theirs) = spot.pair, meter.traces
    made = sum(
        _norm(meter, both, (ours.gradients, theirs.gradients)) * _norm(meter, both, (ours.values, theirs.values))
        for both in pair.made
    )
    taken = _norm(meter, (spot.reference, spot.candidate), (ours.values, theirs.values))
    apart = size.apart.rel_l2 * size.apart.scale * math.sqrt(size.apart.count)
    return taken > 0 and apart * taken <= UNSETTLED(size.eps) * made


def _norm(meter: Meter, both: tuple[Leaf, Leaf], named: tuple[Mapping[int, int], Mapping[int, int]]) -> float:
    """Return the L2 norm of what the reference holds; 0 where it is not known."""
    keys = named[0].get(both[0].token), named[1].get(both[1].token)
    size = meter.size(*keys)
    known = size is not None and math.isfinite(size.apart.scale)
    scale = size.apart.scale if size is not None and known else magnitude(held(meter.traces[0], keys[0]))
    return scale * math.sqrt(math.prod(both[0].shape))


def _bends(spot: Spot, size: Size, meter: Meter) -> bool:
    """Return whether few elements differ, and at these the call took the same numbers but for rounding: its kinks."""
    tokens = spot.reference.token, spot.candidate.token
    if all(leaf.shape != spot.reference.shape for leaf in spot.pair.reference.outputs):
        return False
    found = [
        held(trace, named.get(token))
        for trace, token in zip(meter.traces, tokens, strict=True)
        for named in (trace.values, trace.gradients)
    ]
    taken, sent, other_taken, other_sent = found
    arrays = [one for one in found if isinstance(one, np.ndarray) and one.shape == spot.reference.shape]
    if len(arrays) < len(found):
        return False
    taken, sent, other_taken, other_sent = (one.astype(np.float64).ravel() for one in arrays)
    error, bound = np.abs(sent - other_sent), UNSETTLED(size.eps)
    apart = error > ORDER(size.eps) / 2 * np.maximum(np.abs(sent), np.abs(other_sent))
    apart &= error > bound * size.apart.scale
    rest = np.linalg.norm(error[~apart]) > VANISHES * CONSTANT(size.eps) * np.linalg.norm(sent)
    if rest or not 0 < apart.sum() <= apart.size / _FEW:
        return False
    near = 2 * bound * math.sqrt(float(np.mean(taken**2)))
    places = np.sort(taken[apart])
    several = 1 + int((np.diff(places) > near).sum())
    return several <= _KINKS and bool((np.abs(taken - other_taken)[apart] <= near).all())
