"""Add up every figure of two arrays."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from padiff.numerics._careful import Chunk, careful
from padiff.numerics._dtypes import Array
from padiff.numerics._figures import Metrics, Scalar
from padiff.numerics._squares import Squares

__all__ = ["tallied"]


@attrs.frozen
class _Scales:
    """Hold powers of two: ``shrink`` goes over the values, the others over what is squared."""

    shrink: float = 1.0
    reference: float = 1.0
    candidate: float = 1.0
    error: float = 1.0


@attrs.define
class _Tally:
    """Add up one careful pass: squares scaled by ``scales``, peaks as they are after ``scales.shrink``."""

    scales: _Scales
    error_sum: float = 0.0
    error_squares: Squares = attrs.field(factory=lambda: Squares(np.dtype(np.float64)))
    reference_squares: Squares = attrs.field(factory=lambda: Squares(np.dtype(np.float64)))
    candidate_squares: Squares = attrs.field(factory=lambda: Squares(np.dtype(np.float64)))
    product: Squares = attrs.field(factory=lambda: Squares(np.dtype(np.float64)))
    reference_peak: float = 0.0
    candidate_peak: float = 0.0
    error_peak: float = 0.0
    max_rel: float = 0.0
    outside: int = 0
    mismatched: int = 0
    excluded: int = 0
    worst: int | None = None


def _factor(peak: float) -> float:
    """Return a power of two that brings a peak near 1 where its squares might leave float64's range."""
    if peak == 0.0 or 1e-140 <= peak <= 1e140 or not math.isfinite(peak):
        return 1.0
    return 2.0 ** -min(1000, max(-1000, math.frexp(peak)[1]))


def tallied(ref: Array, cand: Array, atol: float, rtol: float) -> Metrics:
    """Return every figure of two arrays of one shape; `padiff.compare.metrics` says which."""
    tally = _pass(ref, cand, _Scales(), atol, rtol)
    if not math.isfinite(tally.reference_peak + tally.candidate_peak + tally.error_peak):
        # A modulus or a difference passed 1.8e308 although every value is finite: quarter all values first.
        tally = _pass(ref, cand, _Scales(shrink=0.25), atol, rtol)
    scales = _Scales(
        tally.scales.shrink,
        _factor(tally.reference_peak),
        _factor(tally.candidate_peak),
        _factor(tally.error_peak),
    )
    if scales != tally.scales:
        tally = _pass(ref, cand, scales, atol, rtol)
    return _figures(ref, cand, tally)


def _pass(ref: Array, cand: Array, scales: _Scales, atol: float, rtol: float) -> _Tally:
    tally = _Tally(scales)
    start = 0
    with np.errstate(all="ignore"):
        for chunk in careful(ref, cand, scales.shrink):
            _add(tally, chunk, start, atol * scales.shrink, rtol)
            start += chunk.error.size
    return tally


def _add(tally: _Tally, chunk: Chunk, start: int, atol: float, rtol: float) -> None:
    scales, error, size = tally.scales, chunk.error, chunk.reference_abs
    place = int(error.argmax())
    peak = float(error[place])
    if chunk.mismatched.size and not tally.mismatched:
        tally.worst = start + int(chunk.mismatched[0])
    elif not tally.mismatched and peak > tally.error_peak:
        tally.worst = start + place
    tally.mismatched += chunk.mismatched.size
    tally.excluded += chunk.excluded
    tally.error_peak = max(tally.error_peak, peak)
    tally.reference_peak = max(tally.reference_peak, float(np.max(size)))
    tally.candidate_peak = max(tally.candidate_peak, float(np.max(np.abs(chunk.candidate))))
    tally.outside += int(np.count_nonzero(error > atol + rtol * size))
    relative = error / size
    tally.max_rel = max(tally.max_rel, float(np.fmax.reduce(relative, initial=0.0)))  # fmax skips 0/0
    p, q = chunk.reference, chunk.candidate
    if (scales.reference, scales.candidate, scales.error) != (1.0, 1.0, 1.0):
        p, q, error = p * scales.reference, q * scales.candidate, error * scales.error
    tally.error_sum += float(np.sum(error))
    if p.dtype.kind == "c":
        p, q = p.view(np.float64), q.view(np.float64)  # Re(conj(p) q) is the product of the pairs
    tally.error_squares.add(error, error)
    tally.reference_squares.add(p, p)
    tally.candidate_squares.add(q, q)
    tally.product.add(p, q)


def _figures(ref: Array, cand: Array, tally: _Tally) -> Metrics:
    """Return the figures of a finished tally, its scales taken out again."""
    scales, apart = tally.scales, tally.mismatched > 0
    error = math.sqrt(tally.error_squares.total())
    reference = math.sqrt(tally.reference_squares.total())
    candidate = math.sqrt(tally.candidate_squares.total())
    rel_l2 = _ratio(error, reference)
    if 0.0 < rel_l2 < math.inf:
        rel_l2 = rel_l2 * scales.reference / scales.error
    compared = ref.size - tally.excluded
    index = None
    if tally.worst is not None:
        index = tuple(int(i) for i in np.unravel_index(tally.worst, ref.shape)) if ref.ndim else ()
    if reference and candidate:
        cosine = min(1.0, max(-1.0, tally.product.total() / reference / candidate))
    else:
        cosine = 1.0 if reference == candidate else 0.0
    return Metrics(
        count=ref.size,
        max_abs=math.inf if apart else tally.error_peak / scales.shrink,
        max_rel=math.inf if apart else tally.max_rel,
        mean_abs=math.inf if apart else tally.error_sum / max(1, compared) / scales.error / scales.shrink,
        rel_l2=math.inf if apart else rel_l2,
        cosine=cosine,
        outside=(tally.outside + tally.mismatched) / max(1, ref.size),
        mismatched=tally.mismatched,
        excluded=tally.excluded,
        reference_norm=reference / scales.reference / scales.shrink,
        candidate_norm=candidate / scales.candidate / scales.shrink,
        error_norm=math.inf if apart else error / scales.error / scales.shrink,
        worst=index,
        worst_reference=None if index is None else _scalar(ref[index]),
        worst_candidate=None if index is None else _scalar(cand[index]),
    )


def _ratio(above: float, below: float) -> float:
    """Divide; 0/0 is 0 and x/0 infinite."""
    if below == 0.0:
        return 0.0 if above == 0.0 else math.inf
    return above / below


def _scalar(value: Any) -> Scalar:
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    return complex(value) if isinstance(value, np.complexfloating) else float(value)
