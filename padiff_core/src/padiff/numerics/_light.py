"""Compare two arrays in one fast pass."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from padiff.numerics._chunks import chunks
from padiff.numerics._dtypes import Array, Seen, lie_alike, same_bytes
from padiff.numerics._figures import Difference
from padiff.numerics._squares import Squares

_SMALL = 1 << 12
"""Elements up to which arrays are taken whole, in float64: of many small tensors the calls are the cost."""
_LOST = 2e4
"""A square below the smallest normal number may be lost: a sum is trusted that so many of them would not move."""
_LIGHT = 1 << 20  # bytes of one operand: large enough to hide the calls' overhead


def light(ref: Array, cand: Array, work: np.dtype[Any], seen: Seen | None = None) -> tuple[float, float, float] | None:
    """Return (max |e|, ||e||, ||reference||) in one fast pass; None where these sums cannot be trusted.

    ``seen`` is told of it where the pass follows the memory of both arrays.
    """
    if ref.size <= _SMALL and work.kind == "f":
        return _sums(ref, cand)
    real = np.dtype(work.char.lower())
    errors, sizes = Squares(real), Squares(real)
    with np.errstate(all="ignore"):
        if work.kind == "c":
            peak = _complex(ref, cand, work, errors, sizes)
        else:
            peak = _real(ref, cand, work, errors, sizes, seen if lie_alike(ref, cand) else None)
    return _trusted(peak, errors.total(), sizes.total(), ref.size * _least(real))


@cache
def _least(real: np.dtype[Any]) -> float:
    """Return how much one square counts in the sums that are trusted; numpy takes long to tell the smallest number."""
    return _LOST * float(np.finfo(real).tiny)


def small(ref: Array, cand: Array) -> Difference | None:
    """Return the figures of two small arrays of one floating type; None where the plain sums cannot be trusted."""
    if not 0 < ref.size <= _SMALL or ref.dtype is not cand.dtype or ref.shape != cand.shape:
        return None
    if ref.dtype.char not in "fd":
        return None
    if same_bytes(ref, cand):
        return Difference(True, 0.0, 0.0, math.nan, True, True, False, ref.size)
    sums = _sums(ref, cand)
    if sums is None:
        return None
    peak, error, size = sums
    scale = size / math.sqrt(ref.size) if peak else math.nan
    return Difference(peak == 0.0, error / size, peak, scale, True, True, False, ref.size)


def _sums(ref: Array, cand: Array) -> tuple[float, float, float] | None:
    """Return the same sums of two small arrays of real numbers."""
    p, q = np.asarray(ref, np.float64).ravel(), np.asarray(cand, np.float64).ravel()
    size = float(p.dot(p))
    if not math.isfinite(size + float(q.dot(q))):
        return None  # nor would they subtract without a warning
    e = q - p
    return _trusted(float(np.maximum.reduce(np.abs(e))), float(e.dot(e)), size, ref.size * _least(p.dtype))


def _trusted(peak: float, error: float, size: float, floor: float) -> tuple[float, float, float] | None:
    """Return max |e| with the norms of sums of squares; None where some of these overflow, or fall below a floor."""
    if not math.isfinite(peak + error + size) or size < floor or (peak > 0.0 and error < floor):
        return None
    return peak, math.sqrt(error), math.sqrt(size)


def _real(
    ref: Array, cand: Array, work: np.dtype[Any], errors: Squares, sizes: Squares, seen: Seen | None = None
) -> float:
    """Add up the squares of real numbers; return max |e|.

    Read as signed integers, floats of positive sign are in order; read as unsigned ones, those of negative sign
    are, above all others. Integers are faster to search, and |e| needs no pass.
    """
    scratch = np.empty(min(ref.size, _LIGHT // work.itemsize), work)
    e, signed, unsigned = _readings(scratch)
    largest, add_size, add_error = np.maximum.reduce, sizes.add, errors.add
    high = low = done = 0
    for p, q in chunks(ref, cand, (work, work), _LIGHT, order="K"):
        if p.size != e.size:
            e, signed, unsigned = _readings(scratch[: p.size])
        np.subtract(q, p, e)
        add_size(p)  # while it is in the cache
        add_error(e)
        high = max(high, int(largest(signed)))
        low = max(low, int(largest(unsigned)))
        if seen is not None:
            done += p.size
            seen(done * ref.itemsize, False)
    # Where no sign is negative, ``low`` is ``high`` again.
    return float(np.max(np.abs(np.array([high, low], unsigned.dtype).view(work))))


def _readings(e: Array) -> tuple[Array, Array, Array]:
    """Return the same bytes as floats, as signed and as unsigned integers."""
    return e, e.view(f"i{e.itemsize}"), e.view(f"u{e.itemsize}")


def _complex(ref: Array, cand: Array, work: np.dtype[Any], errors: Squares, sizes: Squares) -> float:
    """Add up the squares of complex numbers; return max |e|."""
    scratch = np.empty(min(ref.size, _LIGHT // work.itemsize), work)
    peak = 0.0
    for p, q in chunks(ref, cand, (work, work), _LIGHT, order="K"):
        e = scratch[: p.size]
        np.subtract(q, p, e)
        peak = max(peak, float(np.maximum.reduce(np.abs(e))))
        sizes.add(p.view(work.char.lower()))
        errors.add(e.view(work.char.lower()))
    return peak
