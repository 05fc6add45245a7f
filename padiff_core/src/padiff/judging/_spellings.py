"""Tell whether two recorded values that differ say the same: masks, or indices, in another spelling."""

from __future__ import annotations

import attrs

from padiff.forcing import Spot, says_the_same
from padiff.judging._sizes import Size
from padiff.numerics import SAME, Array, beside_masks
from padiff.trace import Trace

Traces = tuple[Trace, Trace]


def says_the_same_here(spot: Spot, size: Size, traces: Traces) -> bool:
    """Return whether a value that differs is a mask or an index in another spelling."""
    if spot.candidate.differentiable or (both := _both(spot, size, traces)) is None:
        return False
    given = spot.owner is None and both[0].dtype.kind in "iu"  # a batch, and another one
    return not given and says_the_same(spot, *both)


def size_beside_masks(spot: Spot, size: Size, traces: Traces) -> Size | None:
    """Return how far apart a value that differs is where no mask drowns it; None where both do not mask alike."""
    both = _both(spot, size, traces)
    rest = None if both is None else beside_masks(*both)
    return None if rest is None else attrs.evolve(size, apart=rest)


def _both(spot: Spot, size: Size, traces: Traces) -> tuple[Array, Array] | None:
    """Return both values, where they differ by more than free runs do; None where they were not kept."""
    if not size.error > SAME(size.eps) or size.close is not None:
        return None
    ours, theirs = (
        trace.values[leaf.token] for trace, leaf in zip(traces, (spot.reference, spot.candidate), strict=True)
    )
    return None if min(ours, theirs) < 0 else (traces[0].array(ours), traces[1].array(theirs))
