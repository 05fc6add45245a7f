"""Tell a loss that sends more, or less, of a gradient in every row from what automatic casts round."""

from __future__ import annotations

import math

import numpy as np

from padiff.forcing import Spot
from padiff.judging._recorded._levels import Level
from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._two_steps import exact
from padiff.judging._sizes import Size, held
from padiff.judging._suspicion import Ruling
from padiff.numerics import FLOORS, Array, is_coarse
from padiff.report import Evidence, Verdict
from padiff.trace import Leaf

_ROWS = 8
"""Of fewer rows nothing is concluded: rounding may turn each either way."""


def of_each_row(
    ruling: Ruling, source: bool, spot: Spot, size: Size, known: Level, meter: Meter
) -> tuple[Ruling, bool]:
    """Return how a gradient is ruled on, and whether it arises there; what a script sends is by its rows, too."""
    eps = max(size.eps, known.cast)
    open_yet = ruling.verdict in (Verdict.ROUNDING, Verdict.DIFFERS) and not source and size.close is None
    if spot.owner is not None or not open_yet or not is_coarse(eps):
        return ruling, source
    said = _sent_alike(spot, eps, known, meter)
    return (ruling, source) if said is None else (Ruling(Verdict.DIFFERS, ruling.figures, (said,)), True)


def _sent_alike(spot: Spot, eps: float, known: Level, meter: Meter) -> Evidence | None:
    """Return that every row of a loss's gradient is longer, or each shorter, by more than a coarse type rounds.

    What rounding makes of a row goes either way, and what the outputs differ by is
    followed by what is sent back to them (the gradient of squares is the difference itself): that part is left out.
    A softmax follows by as much, relatively, as they are apart.
    """
    sent, given = ([_rows(_held(meter, spot, side, gradient=one)) for side in (0, 1)] for one in (True, False))
    (ours, theirs), (output, other) = sent, given
    if ours is None or theirs is None or output is None or other is None or ours.shape != theirs.shape:
        return None
    squares, more, apart = np.sum(ours * ours, axis=-1), theirs - ours, other - output
    rows = squares > 0
    if np.count_nonzero(rows) < _ROWS or not (np.isfinite(more).all() and np.isfinite(apart).all()):
        return None
    size = float(np.vdot(apart, apart))
    more = more - (float(np.vdot(apart, more)) / size * apart if size else 0.0)
    shares = np.sum(more * ours, axis=-1)[rows] / squares[rows]
    least = max(eps, FLOORS * known.error, FLOORS * math.sqrt(size / apart.size))
    if not ((shares > least).all() or (shares < -least).all()):
        return None
    return Evidence.of("sent_alike", times=1 + float(np.median(shares)), rows=int(np.count_nonzero(rows)))


def _held(meter: Meter, spot: Spot, side: int, *, gradient: bool) -> Array | None:
    leaf: Leaf = (spot.reference, spot.candidate)[side]
    trace = meter.traces[side]
    found = held(trace, (trace.gradients if gradient else trace.values).get(leaf.token))
    return found if isinstance(found, np.ndarray) and found.ndim > 1 else None


def _rows(values: Array | None) -> Array | None:
    return None if values is None else exact(values).reshape(-1, values.shape[-1])
