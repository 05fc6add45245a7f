"""Tell where the recorded backward pass of two runs makes much of rounding: where it cancels, and at kinks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from padiff.forcing import Spot
from padiff.judging._recorded._meter import Meter
from padiff.judging._sizes import Size, held, magnitude
from padiff.numerics import (
    CONSTANT,
    FLOORS,
    ORDER,
    SAME,
    UNSETTLED,
    VANISHES,
    Array,
    difference,
    in_reals,
    root_mean_square,
)
from padiff.trace import Leaf, Trace

Magnified = Literal["gradients_cancelled", "at_a_kink", "signs_turned"]
_FEW = 256
"""Of so many elements at most one may lie at a kink by chance."""
_KINKS = 2
"""Where an activation bends: at 0 and at 6."""


def magnified(spot: Spot, size: Size, meter: Meter) -> Magnified | None:
    """Return how the gradient of a call's input differs by rounding alone, however far; None where it does not.

    Or that of what a call gives, where code of the model's own bends it.
    """
    pair = spot.pair
    if size.close is not None or not size.error > UNSETTLED(size.eps) > 0:
        return None
    if spot.what == "output" and spot.owner is not None:
        return "at_a_kink" if _crosses(spot, size, meter) else None
    if spot.what != "input" or pair.candidate.children:
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
    return taken > 0 and size.apart * taken <= UNSETTLED(size.eps) * made


def _norm(meter: Meter, both: tuple[Leaf, Leaf], named: tuple[Mapping[int, int], Mapping[int, int]]) -> float:
    """Return the L2 norm of what the reference holds; 0 where it is not known."""
    keys = named[0].get(both[0].token), named[1].get(both[1].token)
    size = meter.size(*keys)
    known = size is not None and math.isfinite(size.difference.scale)
    scale = size.difference.scale if size is not None and known else magnitude(held(meter.traces[0], keys[0]))
    return scale * math.sqrt(math.prod(both[0].shape))


def _bends(spot: Spot, size: Size, meter: Meter) -> bool:
    """Return whether only at few elements the call's slope is another one, each of which rounding takes over a kink.

    The slope is what was sent on, for what arrived: so it does not tell what arrived differently. What the call took is
    the same but for rounding, and lies there on the two sides of one of few numbers.
    """
    leaves = next((both for both in spot.pair.made if both[0].shape == spot.reference.shape), None)
    if leaves is None:
        return False
    known_of = [
        (trace, named, leaf)
        for trace, own, made in zip(meter.traces, (spot.reference, spot.candidate), leaves, strict=True)
        for named, leaf in ((trace.values, own), (trace.gradients, own), (trace.gradients, made))
    ]
    arrays = _elements(known_of, spot.reference.shape)
    if arrays is None:
        return False
    taken, sent, came, other_taken, other_sent, other_came = arrays
    bound = UNSETTLED(size.eps)
    slopes = sent * other_came, other_sent * came
    large = np.maximum(*map(np.abs, slopes))
    apart = np.abs(slopes[0] - slopes[1]) > ORDER(size.eps) / 2 * large
    apart &= np.maximum(np.abs(sent), np.abs(other_sent)) > bound * size.difference.scale
    if not _is_few(apart, (sent, other_sent), max(CONSTANT(size.eps), difference(came, other_came).rel_l2)):
        return False
    return (
        difference(taken, other_taken).rel_l2 <= SAME(size.eps) and _points(taken[apart], other_taken[apart]) <= _KINKS
    )


def _crosses(spot: Spot, size: Size, meter: Meter) -> bool:
    """Return whether a gradient differs only where the value is zero but for rounding: at a kink of what takes it."""
    known_of = [
        (trace, named, leaf)
        for trace, leaf in zip(meter.traces, (spot.reference, spot.candidate), strict=True)
        for named in (trace.values, trace.gradients)
    ]
    arrays = _elements(known_of, spot.reference.shape)
    if arrays is None:
        return False
    value, sent, other, other_sent = arrays
    apart = difference(value, other).rel_l2
    known = max(CONSTANT(size.eps), apart)
    zero = (value * other <= 0) | (np.minimum(np.abs(value), np.abs(other)) <= FLOORS * known * root_mean_square(value))
    zero &= np.abs(sent - other_sent) > ORDER(size.eps) / 2 * np.maximum(np.abs(sent), np.abs(other_sent))
    return apart <= SAME(size.eps) and _is_few(zero, (sent, other_sent), known)


def _elements(known: Iterable[tuple[Trace, Mapping[int, int], Leaf]], shape: tuple[int, ...]) -> list[Array] | None:
    """Return the elements of values of one shape, in real numbers; None where one was not kept whole."""
    found = [held(trace, named.get(leaf.token)) for trace, named, leaf in known]
    arrays = [one for one in found if isinstance(one, np.ndarray) and one.shape == shape]
    return [in_reals(one).ravel() for one in arrays] if len(arrays) == len(found) else None


def _is_few(apart: Array, sent: tuple[Array, Array], known: float) -> bool:
    """Return whether what was sent on is ``apart`` at few elements, and elsewhere by no more than is ``known``."""
    if not 0 < apart.sum() <= apart.size / _FEW:
        return False
    ours, theirs = (np.where(apart, 0.0, one) for one in sent)
    return difference(ours, theirs).rel_l2 <= VANISHES * known


def _points(ours: Array, theirs: Array) -> int:
    """Return how many numbers it takes for one to lie between the two of each pair."""
    found, reached = 0, -math.inf
    for high, low in sorted(zip(np.maximum(ours, theirs), np.minimum(ours, theirs), strict=True)):
        if low > reached:
            found, reached = found + 1, float(high)
    return found
