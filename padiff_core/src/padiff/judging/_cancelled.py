"""Tell where a recorded backward pass cancels to rounding: behind a normalisation whose mean is the loss, say."""

from __future__ import annotations

import math
from collections.abc import Mapping

from padiff.forcing import Spot
from padiff.judging._levels import Level
from padiff.judging._meter import Meter
from padiff.judging._sizes import Size, held, magnitude
from padiff.numerics import UNSETTLED
from padiff.trace import Leaf

__all__ = ["cancels"]


def cancels(spot: Spot, size: Size, meter: Meter, known: Level) -> bool:
    """Return whether the gradient of a call's input differs by no more than rounding in what it was summed up from.

    That is at least the gradient that came to the call, times how much larger what it gave is than what it took. Where
    the sum is far smaller than its parts, what is left of it is their rounding; and so is what follows from that, until
    it is added to something larger.
    """
    pair = spot.pair
    if size.close is not None or not size.error > UNSETTLED(size.eps) > 0:
        return False
    if known.cancelled or spot.what != "input" or pair.candidate.children:
        return known.cancelled
    ours, theirs = meter.traces
    leaves = [(pair.reference.outputs[i], pair.candidate.outputs[j]) for i, j in pair.outputs]
    made = sum(
        _norm(meter, both, (ours.gradients, theirs.gradients)) * _norm(meter, both, (ours.values, theirs.values))
        for both in leaves
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
