"""Tell a loss that sends more, or less, of a gradient in every row, or in some, from what automatic casts round."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from padiff.alignment import Alignment
from padiff.forcing import Spot
from padiff.judging._recorded._levels import Level
from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._two_steps import exact, norm
from padiff.judging._sizes import Size, held, multiple
from padiff.judging._suspicion import Ruled, Ruling, Suspicion
from padiff.numerics import EXACT, FLOORS, LOSS, NEGLIGIBLE, UNSETTLED, Array, epsilon_of, is_coarse, numpy_dtype
from padiff.report import Evidence, Verdict
from padiff.trace import Leaf

_ROWS = 8
"""Of fewer rows nothing is concluded: rounding may turn each either way."""
_FEW = 8
"""What part of all elements may lie where rounding turns the sign of what a loss sends."""
_SHOWN = 4
"""Part of all rows that is far more than a few."""
_TAIL = 64
"""Rows whose squares are so many times smaller than the mean are what is left of a loss, and rounding."""
_REACHES = 64
"""How many times less than what is sent otherwise, as a part of all, the gradients of parameters differ by that."""
_SINGLE = epsilon_of("float32")


def of_each_row(
    ruling: Ruling, source: bool, spot: Spot, size: Size, known: Level, meter: Meter, alignment: Alignment
) -> Ruled:
    """Return how a gradient is ruled on, and whether it arises there; what a script sends is by its rows, too."""
    eps = max(size.eps, known.cast)
    judged = ruling.verdict in (Verdict.ROUNDING, Verdict.DIFFERS) and size.close is None
    if spot.owner is not None or not judged or not is_coarse(eps):
        return ruling, source
    said = _sent_alike(spot, eps, meter, lambda: _is_another_loss(alignment, meter))
    if said is not None:
        return Ruling(Verdict.DIFFERS, ruling.figures, (said,)), True
    if size.error > EXACT(eps) and _follows(spot, eps, meter, alignment):
        return Ruling(Verdict.ROUNDING, ruling.figures, (Evidence("rounding_magnified"),)), False
    return ruling, source


def by_rows(one: Suspicion) -> bool:
    """Return whether a suspicion is of what `of_each_row` tells: the loss sends it, whatever becomes of it behind."""
    return one.ruling.rests_on("sent_alike", "sent_by_row")


def reaches_parameters(one: Suspicion, meter: Meter, apart: float) -> bool:
    """Return whether what is sent to an output of a script's call differs as the gradients of parameters are ``apart``.

    Where one side goes on with a value of which the other has two, these agree, whatever part of all the value gets.
    """
    trace = meter.traces[0]
    spot = one.spot
    own = None if spot is None or spot.what != "output" else trace.gradient(spot.reference)
    if own is None or spot is None or spot.pair.candidate.parent is not None:
        return False
    given = [trace.gradient(leaf) for call in trace.tops for leaf in call.outputs]
    whole = math.hypot(*(norm(exact(gradient)) for gradient in given if gradient is not None))
    part = one.ruling.figures.rel_l2 * norm(exact(own)) / whole if whole else 0.0
    return apart * _REACHES >= part > UNSETTLED(epsilon_of(spot.reference.dtype, spot.candidate.dtype))


def _sent_alike(spot: Spot, eps: float, meter: Meter, another: Callable[[], bool]) -> Evidence | None:
    """Return that the rows of a loss's gradient are longer, or shorter, by more than a coarse type rounds.

    What rounding makes of a row goes either way, and what the outputs differ by is
    followed by what is sent back to them (the gradient of squares is the difference itself): that part is left out.
    A softmax follows by as much, relatively, as they are moved along it: what is no chance of rows is held to the mean
    of that, and a single row to its largest. Less tells where the loss is ``another`` one, too.
    """
    found = _both_ends(spot, meter)
    if found is None:
        return None
    ours, theirs, output, other = found
    squares, more, apart = np.sum(ours * ours, axis=-1), theirs - ours, other - output
    rows = squares > squares.mean() / _TAIL
    weights = squares / squares.sum()
    few = np.count_nonzero(rows) < _ROWS or np.vdot(weights, weights) * _ROWS > 1
    if few or not np.isfinite(more).all() or not np.isfinite(apart).all():
        return None
    more = more - multiple(apart, more)[0] * apart
    along = np.sum(more * ours, axis=-1)
    shares, count = along[rows] / squares[rows], int(np.count_nonzero(rows))
    mean = float(along.sum() / squares.sum())
    chance = float(np.linalg.norm(along / squares.sum() - mean * weights))
    moved = 2 * np.sum(apart * ours, axis=-1) / np.maximum(np.abs(ours).sum(axis=-1), np.finfo(float).tiny)
    systematic = FLOORS * abs(float(np.vdot(weights, moved)))
    if abs(mean) > max(EXACT(chance), eps / 2, systematic) and (abs(mean) > eps or another()):
        return Evidence.of("sent_alike", times=1 + mean, rows=count)
    rest = np.sqrt(np.maximum(np.sum(more * more, axis=-1)[rows] / squares[rows] - shares**2, 0.0))
    peaks = np.abs(apart).max(axis=-1)[rows]
    far = np.abs(shares) > np.maximum(np.maximum(eps, FLOORS * peaks), NEGLIGIBLE(rest))
    if np.count_nonzero(far) * _SHOWN > count and another():
        least, most = (1 + float(one) for one in np.quantile(shares, (0.05, 0.95)))
        return Evidence.of("sent_by_row", least=least, most=most, rows=count)
    return None


def _both_ends(spot: Spot, meter: Meter) -> list[Array] | None:
    """Return, by rows, the gradients that both sides' losses send, and the outputs that they send them to."""
    held = [_rows(_held(meter, spot, side, gradient=sent)) for sent in (True, False) for side in (0, 1)]
    arrays = [one for one in held if one is not None]
    return arrays if len(arrays) == len(held) and len({one.shape for one in arrays}) == 1 else None


def _follows(spot: Spot, eps: float, meter: Meter, alignment: Alignment) -> bool:
    """Return whether what a loss sends differs as the outputs do, where these are near its least.

    There a gradient of squares is what output and target are apart, or none where that counts no more; and one of sizes
    is a sign, which few elements turn, in losses that are one but for these.
    """
    found = _both_ends(spot, meter)
    if found is None:
        return False
    ours, theirs, output, other = found
    more, apart = theirs - ours, other - output
    moved = apart != 0
    if not moved.any() or not np.isfinite(more).all() or not np.isfinite(apart).all():
        return False
    slope = float(np.quantile(more[moved] / apart[moved], 0.75))
    rest = np.minimum(np.abs(more), np.abs(more - slope * apart))
    if slope > 0 and np.linalg.norm(rest) <= NEGLIGIBLE(eps) * np.linalg.norm(ours):
        return True
    turned = ours * theirs < 0
    rest = np.abs(theirs) - np.abs(ours)
    few = bool(np.count_nonzero(turned) * _FEW <= turned.size) and meter.traces[0].loss is not None
    return few and np.linalg.norm(rest) <= eps * np.linalg.norm(ours) and not _is_another_loss(alignment, meter)


def _is_another_loss(alignment: Alignment, meter: Meter) -> bool:
    """Return whether two losses are further apart than what they are made of explains.

    That is, but for third powers, how far the outputs are apart times the mean of both gradients: of one function. A
    script may log some of what its backward pass starts from, or a few times as much.
    """
    ours, theirs = (trace.loss for trace in meter.traces)
    if ours is None or theirs is None:
        return False
    explained, chance = 0.0, 0.0
    for one, other in (both for top in alignment.tops for both in top.made):
        sides = list(zip(meter.traces, (one, other), strict=True))
        values = [held(trace, trace.values.get(leaf.token)) for trace, leaf in sides]
        sent = [held(trace, trace.gradients.get(leaf.token)) for trace, leaf in sides]
        arrays = [found for found in (*values, *sent) if isinstance(found, np.ndarray)]
        if len(arrays) < 4 or len({one.shape for one in arrays}) > 1:
            if len(arrays) < 2 or not np.array_equal(arrays[0], arrays[1]):
                return False  # a loss may be made of what no gradient comes to: a teacher's
            continue
        value, another, mine, yours = map(exact, arrays)
        parts = (another - value) * (mine + yours) / 2
        explained, chance = explained + float(parts.sum()), math.hypot(chance, float(np.linalg.norm(parts)))
    rounded = max(map(_rounded, (ours, theirs)))
    return abs(theirs - ours - explained) > NEGLIGIBLE(abs(explained) + chance) + LOSS(rounded) * abs(ours)


def _rounded(loss: float) -> float:
    """Return the epsilon of the type that a loss may have been computed in: the coarsest that holds it."""
    types = ("bfloat16", "float16")
    return next((epsilon_of(one) for one in types if float(numpy_dtype(one).type(loss)) == loss), _SINGLE)


def _held(meter: Meter, spot: Spot, side: int, *, gradient: bool) -> Array | None:
    leaf: Leaf = (spot.reference, spot.candidate)[side]
    trace = meter.traces[side]
    found = held(trace, (trace.gradients if gradient else trace.values).get(leaf.token))
    return found if isinstance(found, np.ndarray) and found.ndim else None


def _rows(values: Array | None) -> Array | None:
    return None if values is None else exact(values).reshape(-1, values.shape[-1] if values.ndim > 1 else 1)
