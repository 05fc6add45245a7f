"""Walk through two arrays in float64, with NaN and infinities taken out."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from padiff.numerics._chunks import chunks
from padiff.numerics._dtypes import Array, is_exact, work_dtype

_CAREFUL = 1 << 18  # bytes of one operand: there are a dozen temporaries


@attrs.frozen
class Chunk:
    """Hold one chunk in float64, with 0 at places that are not compared."""

    reference: Array
    reference_abs: Array
    error: Array
    mismatched: Array  # indices inside the chunk
    excluded: int


def careful(ref: Array, cand: Array, shrink: float) -> Iterator[Chunk]:
    """Yield chunks in C order, NaN and infinities taken out; values times ``shrink``."""
    exact = is_exact(ref, cand)
    work = work_dtype(ref, cand)
    if exact:
        dtypes = tuple(np.dtype("u8" if a.dtype.kind == "u" else "i8") for a in (ref, cand))
    else:
        wide = work if work.char in "gG" else np.dtype("c16" if work.kind == "c" else "f8")
        dtypes = (wide, wide)
    final = np.dtype("c16" if work.kind == "c" else "f8")
    for p, q in chunks(ref, cand, (dtypes[0], dtypes[1]), _CAREFUL, order="C"):
        mismatched, excluded = np.empty(0, np.intp), 0
        finite = np.isfinite(p)
        finite &= np.isfinite(q)
        if not finite.all():
            same = ~finite & same_values(p, q)
            mismatched = np.flatnonzero(~finite & ~same)
            excluded = int(np.count_nonzero(same))
            p, q = np.where(finite, p, 0), np.where(finite, q, 0)
        if shrink != 1.0:
            p, q = p * shrink, q * shrink
        error = _integer_error(p, q) if exact else np.abs(q - p).astype(np.float64, copy=False)
        p = p.astype(final, copy=False)
        yield Chunk(p, np.abs(p), error, mismatched, excluded)


def same_values(p: Array, q: Array) -> Array:
    """Tell where values are equal or both NaN; of complex numbers, in both parts."""
    if p.dtype.kind == "c":
        return same_values(p.real, q.real) & same_values(p.imag, q.imag)
    same: Array = (p == q) | (np.isnan(p) & np.isnan(q))
    return same


def _integer_error(p: Array, q: Array) -> Array:
    """Return |q - p| of 64-bit integers in float64, rounded once, never wrapped."""
    if p.dtype == q.dtype:
        gap: Array = np.maximum(p, q).view("u8") - np.minimum(p, q).view("u8")
        return gap.astype(np.float64)
    signed, unsigned = (p, q) if p.dtype.kind == "i" else (q, p)
    negative = np.minimum(signed, 0).astype(np.float64)
    return _integer_error(np.maximum(signed, 0).view("u8"), unsigned) - negative
