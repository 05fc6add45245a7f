"""Know a scale that a coarse type hides: rounding makes elements larger or smaller by chance, and a scale all alike.

Of 110 right ports in bfloat16 and float16 (transformers, convolutions, recurrent layers, 16 to 192 wide) what a call
makes is larger or smaller by at most 1.1 epsilons, and what it adds to what it took by 0.6; in a plain net of 16 layers
it is by 3.8, of which chance explains as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Spot
from padiff.judging._recorded._levels import Level
from padiff.judging._recorded._meter import Meter
from padiff.judging._sizes import Size, held, multiple
from padiff.judging._suspicion import Ruled, Ruling
from padiff.numerics import FLOORS, Array, is_coarse, sample
from padiff.report import Evidence, Verdict
from padiff.trace import Leaf

_LEAST = 2.0
"""Epsilons of the coarse type by which a scale differs from one at least."""
_SURE = 30.0
"""Times what chance makes of so many elements: right ports show 20, faults of a few hundredths 60."""
_FEW = 32
"""Elements that tell of chance at least."""
_MANY = 4096
"""Elements that are asked at most: of more a scale shows no better."""


def scaled_here(ruled: Ruled, spot: Spot, owner: Pair, size: Size, levels: tuple[Level, Level], meter: Meter) -> Ruled:
    """Return how a value is ruled, where rounding explains it but for a scale that all of its elements show.

    ``levels`` are what is known of the value, where its own scale is noted, and of what its code was given.
    """
    (ruling, source), (level, known) = ruled, levels
    eps = max(size.eps, level.cast, known.cast)
    if size.close is not None or not is_coarse(eps) or size.error < eps / 2:
        return ruled
    made = list(_made(spot, owner, meter))
    level.scaled = max((abs(scale) for what, scale, _ in made if what == "made_scaled"), default=0.0)
    if source or known.differs or ruling.verdict is not Verdict.ROUNDING:
        return ruled
    least = max(_LEAST * eps, FLOORS * known.scaled, FLOORS * known.drift)
    for what, scale, chance in made:
        if abs(scale) > max(least, _SURE * chance):
            return Ruling(Verdict.DIFFERS, ruling.figures, (Evidence.of(what, times=1 + scale),)), True
    return ruled


def _made(spot: Spot, owner: Pair, meter: Meter) -> Iterator[tuple[str, float, float]]:
    """Yield the scale of what a call's code makes, and of what it adds to each that it took; see `_scale`."""
    for ours, theirs in _known(spot.reference, spot.candidate, meter):
        yield "made_scaled", *_scale(ours, theirs)
        for both in owner.taken:
            for a, b in _known(*both, meter) if both[0].shape == spot.reference.shape else ():
                yield "added_scaled", *_scale(ours - a, theirs - b)


def _known(ours: Leaf, theirs: Leaf, meter: Meter) -> Iterator[tuple[Array, Array]]:
    """Yield elements of both sides' values, of one shape in the same places, where both were kept whole."""
    leaves = zip(meter.traces, (ours, theirs), strict=True)
    found = [held(trace, trace.values.get(leaf.token)) for trace, leaf in leaves]
    arrays = [one for one in found if isinstance(one, np.ndarray) and one.dtype.kind not in "biu"]
    if len(arrays) == 2 and arrays[0].shape == arrays[1].shape:
        yield sample(arrays[0], _MANY), sample(arrays[1], _MANY)


def _scale(ours: Array, theirs: Array) -> tuple[float, float]:
    """Return by how much a value is larger in all elements, as a share, and how much of that chance would make.

    Few elements, or few that are larger than all others by far, tell nothing of others.
    """
    squares = np.square(ours)
    whole = float(squares.sum())
    count = whole**2 / float(np.vdot(squares, squares)) if whole else 0.0  # as many as if all were of one size
    if not (math.isfinite(whole) and count >= _FEW):
        return 0.0, math.inf
    times, left = multiple(ours, theirs)
    return times - 1.0, left / math.sqrt(whole * count)
