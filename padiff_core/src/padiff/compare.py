"""Measure how far a candidate array is from its reference.

Three depths, each costing more than the one before: `difference` looks at the bits, then at max-abs and
relative L2; `metrics` measures everything, for arrays that are suspicious; `close` applies the classic rules
that a user types. All work in chunks that stay in the cache: beside the two arrays they need about 2 MB,
whatever the arrays' size. Shapes are never broadcast.

One meaning throughout. NaN is equal to NaN at the same place, an infinity to the same infinity; such places
are left out of norms and means. A NaN or infinity without its equal on the other side is an infinite error.
Values of two dtypes are compared in a type that holds both; of integers the exact difference is taken. The
error of complex numbers is a modulus. Non-numeric arrays raise ``TypeError``.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Difference", "Metrics", "close", "difference", "metrics", "sample"]

Array: TypeAlias = NDArray[Any]
Scalar: TypeAlias = bool | int | float | complex

_LIGHT = 1 << 19  # bytes of one operand in the light pass: large enough to hide the calls' overhead
_CAREFUL = 1 << 18  # the same in the careful pass, which has a dozen temporaries
_BLOCK = 1 << 13  # elements of one BLAS call
_GOLDEN = (math.sqrt(5) - 1) / 2
_MODES = ("strict", "mean")
_WORK = tuple(np.dtype(name) for name in ("f4", "c8", "f8", "c16", "longdouble", "clongdouble"))


@attrs.frozen
class Difference:
    """Say how far a candidate is from its reference, by the two figures that are cheap.

    ``equal``: the same values (0.0 equals -0.0, NaN equals NaN), whatever the dtypes. ``rel_l2``:
    ||candidate - reference|| / ||reference||, with 0/0 = 0 and x/0 = inf. ``max_abs``: the largest
    |candidate - reference|. ``scale``: the root mean square of the reference; NaN where it was not measured
    (equal bits, empty arrays, unequal shapes). ``nan_mismatch``: a NaN or infinity is on one side only, or
    infinities of two signs; then, as for unequal shapes, both errors are infinite. ``count``: elements of the
    reference.
    """

    equal: bool
    rel_l2: float
    max_abs: float
    scale: float
    shape_equal: bool
    dtype_equal: bool
    nan_mismatch: bool
    count: int


@attrs.frozen
class Metrics:
    """Say how far a candidate is from its reference, by every figure; ``attrs.asdict`` makes a dict of it.

    With e = candidate - reference over the ``count - excluded`` elements that are compared: ``max_abs``
    = max |e|, ``max_rel`` = max |e / reference| (0/0 = 0), ``mean_abs`` = mean |e|, ``rel_l2`` = ||e|| /
    ||reference||; ``cosine`` is that of the angle between both (real part; 1 for two zero vectors, 0 for one)
    and, like the norms, is taken over the elements that are finite on both sides. ``outside`` is the fraction
    of elements with |e| > atol + rtol |reference|. ``worst`` is the index of the largest |e|, or of the first
    element that is not finite on one side; None when nothing is apart. ``mismatched`` counts elements with a
    NaN or infinity without its equal, ``excluded`` those with the same NaN or infinity on both sides.
    """

    count: int
    max_abs: float
    max_rel: float
    mean_abs: float
    rel_l2: float
    cosine: float
    outside: float
    mismatched: int
    excluded: int
    reference_norm: float
    candidate_norm: float
    error_norm: float
    worst: tuple[int, ...] | None
    worst_reference: Scalar | None
    worst_candidate: Scalar | None


def difference(reference: ArrayLike, candidate: ArrayLike) -> Difference:
    """Return the cheap figures of two arrays of any shape, layout and numeric dtype.

    Equal bits end it; then one pass in the arrays' own precision, squares summed by chunk in float32 (float64
    for wider types) and over the chunks in float64; where these sums overflow, vanish or meet NaN, `metrics`
    decides. ``rel_l2`` is right to 1e-3 of itself wherever float64 holds it. Raises ``TypeError`` for
    non-numeric arrays.
    """
    ref, cand = np.asarray(reference), np.asarray(candidate)
    work = _work_dtype(ref, cand)
    figures: dict[str, Any] = {
        "shape_equal": ref.shape == cand.shape,
        "dtype_equal": ref.dtype.newbyteorder("=") == cand.dtype.newbyteorder("="),
        "count": ref.size,
    }
    if ref.shape != cand.shape:
        return Difference(equal=False, rel_l2=math.inf, max_abs=math.inf, scale=math.nan, nan_mismatch=False, **figures)
    if ref.size == 0 or _same_bytes(ref, cand):
        return Difference(equal=True, rel_l2=0.0, max_abs=0.0, scale=math.nan, nan_mismatch=False, **figures)
    light = None if _exact(ref, cand) or work.char in "gG" else _light(ref, cand, work)
    if light is not None:
        peak, error, size = light
        scale = size / math.sqrt(ref.size)
        return Difference(
            equal=peak == 0.0, rel_l2=error / size, max_abs=peak, scale=scale, nan_mismatch=False, **figures
        )
    full = metrics(ref, cand)
    return Difference(
        equal=full.max_abs == 0.0,
        rel_l2=full.rel_l2,
        max_abs=full.max_abs,
        scale=full.reference_norm / math.sqrt(ref.size),
        nan_mismatch=full.mismatched > 0,
        **figures,
    )


def metrics(reference: ArrayLike, candidate: ArrayLike, *, atol: float = 0.0, rtol: float = 0.0) -> Metrics:
    """Return every figure of two arrays of any shape, layout and numeric dtype, computed in float64.

    ``atol`` and ``rtol`` serve ``outside`` alone: left at 0 it is the fraction of unequal elements. For
    unequal shapes the errors are infinite, ``cosine`` and the norms NaN. Raises ``TypeError`` for non-numeric
    arrays.

    Where a plain sum of squares would overflow or vanish, a second pass scales by powers of two, as LAPACK's
    ``dlassq`` does.
    """
    ref, cand = np.asarray(reference), np.asarray(candidate)
    _work_dtype(ref, cand)
    if ref.shape != cand.shape:
        inf, nan = math.inf, math.nan
        return Metrics(ref.size, inf, inf, inf, inf, nan, 1.0, 0, 0, nan, nan, nan, None, None, None)
    tally = _tally(ref, cand, _Scales(), atol, rtol)
    if not math.isfinite(tally.reference_peak + tally.candidate_peak + tally.error_peak):
        # A modulus or a difference passed 1.8e308 although every value is finite: quarter all values first.
        tally = _tally(ref, cand, _Scales(shrink=0.25), atol, rtol)
    scales = _Scales(
        tally.scales.shrink,
        _factor(tally.reference_peak),
        _factor(tally.candidate_peak),
        _factor(tally.error_peak),
    )
    if scales != tally.scales:
        tally = _tally(ref, cand, scales, atol, rtol)
    return _figures(ref, cand, tally)


def close(
    reference: ArrayLike,
    candidate: ArrayLike,
    *,
    atol: float,
    rtol: float,
    mode: Literal["strict", "mean"] = "strict",
) -> bool:
    """Say whether a candidate is within a tolerance of its reference.

    ``strict``: every |candidate - reference| <= atol + rtol |reference|, the rule of ``numpy.allclose``.
    ``mean``: mean |candidate - reference| <= atol + rtol mean |reference|; the mean of the error, never the
    error of the means. A NaN or infinity without its equal on the other side, or another shape, is never
    close. Raises ``ValueError`` for an unknown mode or a negative tolerance, ``TypeError`` for non-numeric
    arrays.
    """
    if mode not in _MODES:
        msg = f"mode is {mode!r}, expected one of {', '.join(map(repr, _MODES))}"
        raise ValueError(msg)
    if not (atol >= 0 and rtol >= 0):
        msg = f"atol is {atol!r} and rtol is {rtol!r}, expected both to be 0 or more"
        raise ValueError(msg)
    ref, cand = np.asarray(reference), np.asarray(candidate)
    _work_dtype(ref, cand)
    if ref.shape != cand.shape:
        return False
    if ref.size == 0 or _same_bytes(ref, cand):
        return True
    error = size = 0.0
    compared = ref.size
    with np.errstate(all="ignore"):
        for chunk in _careful(ref, cand, 1.0):
            if chunk.mismatched.size:
                return False
            if mode == "strict" and bool((chunk.error > atol + rtol * chunk.reference_abs).any()):
                return False
            compared -= chunk.excluded
            error += float(np.sum(chunk.error / ref.size))
            size += float(np.sum(chunk.reference_abs / ref.size))
    if mode == "strict" or compared == 0:
        return True
    return error <= atol * (compared / ref.size) + rtol * size


def sample(array: ArrayLike, count: int = 64) -> NDArray[np.float64]:
    """Return ``count`` values of an array, in float64, as a fingerprint that costs microseconds.

    The places depend on the array's size alone: one in each of ``count`` equal stretches of the flat (C
    order) array, shifted by multiples of the golden ratio so that they do not fall into one column. An array
    of at most ``count`` elements is returned whole. Complex values give two numbers each. Integers beyond
    2**53 are rounded. Raises ``TypeError`` for non-numeric arrays.
    """
    values = np.asarray(array)
    _work_dtype(values, values)
    if values.size <= count:
        places = np.arange(values.size)
    else:
        steps = np.arange(count)
        places = ((steps + (steps * _GOLDEN) % 1.0) * (values.size / count)).astype(np.intp)
    picked = values[np.unravel_index(places, values.shape)] if values.ndim else values.reshape(1)[places]
    if picked.dtype.kind == "c":
        return picked.astype(np.complex128).view(np.float64)
    return picked.astype(np.float64)


# ------------------------------------------------------------------------------------------- dtypes and bits


def _work_dtype(ref: Array, cand: Array) -> np.dtype[Any]:
    """Return the narrowest floating type that holds the values of both arrays; for int64 see `_exact`."""
    dtypes = []
    for side, array in (("reference", ref), ("candidate", cand)):
        dtype = array.dtype
        # Integers are summed in float64: their figures are exact as long as float64 is.
        dtype = np.dtype("f8") if dtype.kind in "biu" else np.dtype("f4") if _narrow(dtype) else dtype
        if dtype.kind not in "fc":
            msg = f"{side} has dtype {array.dtype}, expected numbers. Hint: convert it before comparing"
            raise TypeError(msg)
        dtypes.append(dtype)
    return next(work for work in _WORK if all(np.can_cast(dtype, work) for dtype in dtypes))


def _narrow(dtype: np.dtype[Any]) -> bool:
    """Tell whether float32 holds every value: float16 and the types of ml_dtypes, whose kind is often "V"."""
    return dtype.kind in "fV" and dtype.names is None and np.can_cast(dtype, np.float32)


def _exact(ref: Array, cand: Array) -> bool:
    """Tell whether both are integers of which one has values that float64 would round."""
    return ref.dtype.kind in "biu" and cand.dtype.kind in "biu" and max(ref.itemsize, cand.itemsize) == 8


@functools.cache
def _memcmp() -> Callable[[int, int, int], int] | None:
    """Return the C library's memcmp: as fast as memory, stops at the first difference, makes no copy."""
    try:
        found = ctypes.CDLL("msvcrt" if os.name == "nt" else None).memcmp
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    found.restype = ctypes.c_int
    return cast(Callable[[int, int, int], int], found)


def _same_bytes(ref: Array, cand: Array) -> bool:
    """Tell whether arrays of one shape lie alike in memory and hold the same bytes; False settles nothing."""
    if ref.dtype != cand.dtype:
        return False
    both_c = ref.flags.c_contiguous and cand.flags.c_contiguous
    both_f = ref.flags.f_contiguous and cand.flags.f_contiguous
    memcmp = _memcmp()
    if memcmp is None or not (both_c or both_f):
        return False
    return memcmp(ref.ctypes.data, cand.ctypes.data, ref.nbytes) == 0


# ---------------------------------------------------------------------------------------------------- chunks


@functools.lru_cache(maxsize=32)
def _table(dtype: np.dtype[Any], work: np.dtype[Any]) -> Array:
    """Return all values of a one- or two-byte type: a look-up is 2 (float16) to 7 (fp8) times as fast."""
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    return bits.view(dtype).astype(work)


def _looked_up(array: Array) -> bool:
    if array.dtype.kind in "biu" or not array.dtype.isnative:
        return False
    # bfloat16's cast is a shift, which no table beats.
    return array.itemsize == 1 or (array.dtype == np.float16 and array.size >= 1 << 16)


def _chunks(
    ref: Array,
    cand: Array,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    limit: int,
    *,
    order: Literal["K", "C"],
) -> Iterator[tuple[Array, Array]]:
    """Yield both arrays in contiguous one-dimensional chunks of the given dtypes, of at most ``limit`` bytes.

    Chunks are views of the arrays where these lie so, else of buffers that the next step overwrites.
    """
    arrays = (np.atleast_1d(ref), np.atleast_1d(cand))
    tables = [_table(a.dtype, d) if _looked_up(a) else None for a, d in zip(arrays, dtypes, strict=True)]
    size = limit // max(dtype.itemsize for dtype in dtypes)
    if any(a.dtype != dtype or not a.flags.forc for a, dtype in zip(arrays, dtypes, strict=True)):
        size //= 2  # there will be buffers
    # numpy 1.26's stubs misspell "contig".
    flags: Any = ["readonly", "contig", "aligned"]
    iterator = np.nditer(
        arrays,
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_flags=[flags, flags],
        op_dtypes=[a.dtype if t is not None else d for a, t, d in zip(arrays, tables, dtypes, strict=True)],
        order=order,
        casting="unsafe",
        buffersize=size,
    )
    if all(table is None for table in tables):
        yield from cast("Iterator[tuple[Array, Array]]", iterator)
        return
    outs = [np.empty(min(size, ref.size), dtype) for dtype in dtypes]
    for pair in cast("Iterator[tuple[Array, Array]]", iterator):
        done = []
        for chunk, table, out in zip(pair, tables, outs, strict=True):
            if table is None:
                done.append(chunk)
                continue
            bits = chunk.view(f"u{chunk.itemsize}")
            done.append(np.take(table, bits, out=out[: len(chunk)], mode="clip"))
        yield done[0], done[1]


def _light(ref: Array, cand: Array, work: np.dtype[Any]) -> tuple[float, float, float] | None:
    """Return (max |e|, ||e||, ||reference||) in one fast pass; None where these sums cannot be trusted."""
    real = np.dtype(work.char.lower())
    signed, unsigned = np.dtype(f"i{real.itemsize}"), np.dtype(f"u{real.itemsize}")
    scratch = np.empty(min(ref.size, _LIGHT // work.itemsize), work)
    errors, sizes = _Squares(real), _Squares(real)
    high = low = 0
    modulus = 0.0
    largest = np.maximum.reduce
    with np.errstate(all="ignore"):
        for p, q in _chunks(ref, cand, (work, work), _LIGHT, order="K"):
            e = scratch[: p.size]
            np.subtract(q, p, e)
            if work.kind == "c":
                modulus = max(modulus, float(largest(np.abs(e))))
                e, p = e.view(real), p.view(real)
                sizes.add(p, p)
                errors.add(e, e)
                continue
            sizes.add(p, p)  # while it is in the cache
            errors.add(e, e)
            # Read as signed integers, floats of positive sign are in order; read as unsigned ones, those of
            # negative sign are, above all others. Integers are faster to search, and |e| needs no pass.
            high = max(high, int(largest(e.view(signed))))
            low = max(low, int(largest(e.view(unsigned))))
    error, size = errors.total(), sizes.total()
    if work.kind == "c":
        peak = modulus
    else:
        # Where no sign is negative, ``low`` is ``high`` again.
        peak = float(np.max(np.abs(np.array([high, low], unsigned).view(work))))
    # A square below the smallest normal number may be lost: trust a sum that many of them would not move.
    floor = 2e4 * ref.size * float(np.finfo(real).tiny)
    if not math.isfinite(peak + error + size) or size < floor or (peak > 0.0 and error < floor):
        return None
    return peak, math.sqrt(error), math.sqrt(size)


class _Squares:
    """Add up scalar products of contiguous vectors: blocks in their own type, sums of blocks in float64.

    BLAS sets threads spinning for products of more than 10000 elements; a stack of short vectors avoids that.
    On x86 OpenBLAS leaves float32 to one thread: there a whole chunk is one block, which is 5 % faster.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._whole = dtype == np.float32 and platform.machine() in ("x86_64", "AMD64")
        self._blocks = np.zeros((0, 1, 1))
        self._rest = 0.0

    def add(self, p: Array, q: Array) -> None:
        """Add the product of two vectors of one length."""
        if self._whole or p.size < _BLOCK:
            self._rest += float(p.dot(q))
            return
        rest = p.size % _BLOCK
        if rest:
            self._rest += float(p[-rest:].dot(q[-rest:]))
            p, q = p[:-rest], q[:-rest]
        products = np.matmul(p.reshape(-1, 1, _BLOCK), q.reshape(-1, _BLOCK, 1))
        if len(products) > len(self._blocks):
            self._blocks = np.concatenate([self._blocks, np.zeros_like(products, np.float64)])
        self._blocks[: len(products)] += products

    def total(self) -> float:
        """Return the sum so far."""
        return float(self._blocks.sum()) + self._rest


# ---------------------------------------------------------------------------------------------- careful pass


@attrs.frozen
class _Scales:
    """Hold powers of two: ``shrink`` goes over the values, the others over what is squared."""

    shrink: float = 1.0
    reference: float = 1.0
    candidate: float = 1.0
    error: float = 1.0


@attrs.frozen
class _Chunk:
    """Hold one chunk in float64, with 0 at places that are not compared."""

    reference: Array
    candidate: Array
    reference_abs: Array
    error: Array
    mismatched: Array  # indices inside the chunk
    excluded: int


@attrs.define
class _Tally:
    """Add up one careful pass: squares scaled by ``scales``, peaks as they are after ``scales.shrink``."""

    scales: _Scales
    error_sum: float = 0.0
    error_squares: _Squares = attrs.field(factory=lambda: _Squares(np.dtype(np.float64)))
    reference_squares: _Squares = attrs.field(factory=lambda: _Squares(np.dtype(np.float64)))
    candidate_squares: _Squares = attrs.field(factory=lambda: _Squares(np.dtype(np.float64)))
    product: _Squares = attrs.field(factory=lambda: _Squares(np.dtype(np.float64)))
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


def _careful(ref: Array, cand: Array, shrink: float) -> Iterator[_Chunk]:
    """Yield chunks in C order, NaN and infinities taken out; values times ``shrink``."""
    exact = _exact(ref, cand)
    work = _work_dtype(ref, cand)
    if exact:
        dtypes = tuple(np.dtype("u8" if a.dtype.kind == "u" else "i8") for a in (ref, cand))
    else:
        wide = work if work.char in "gG" else np.dtype("c16" if work.kind == "c" else "f8")
        dtypes = (wide, wide)
    final = np.dtype("c16" if work.kind == "c" else "f8")
    for p, q in _chunks(ref, cand, (dtypes[0], dtypes[1]), _CAREFUL, order="C"):
        mismatched, excluded = np.empty(0, np.intp), 0
        finite = np.isfinite(p)
        finite &= np.isfinite(q)
        if not finite.all():
            same = ~finite & _same_values(p, q)
            mismatched = np.flatnonzero(~finite & ~same)
            excluded = int(np.count_nonzero(same))
            p, q = np.where(finite, p, 0), np.where(finite, q, 0)
        if shrink != 1.0:
            p, q = p * shrink, q * shrink
        error = _integer_error(p, q) if exact else np.abs(q - p).astype(np.float64, copy=False)
        p, q = p.astype(final, copy=False), q.astype(final, copy=False)
        yield _Chunk(p, q, np.abs(p), error, mismatched, excluded)


def _same_values(p: Array, q: Array) -> Array:
    """Tell where values are equal or both NaN; of complex numbers, in both parts."""
    if p.dtype.kind == "c":
        return _same_values(p.real, q.real) & _same_values(p.imag, q.imag)
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


def _tally(ref: Array, cand: Array, scales: _Scales, atol: float, rtol: float) -> _Tally:
    tally = _Tally(scales)
    start = 0
    with np.errstate(all="ignore"):
        for chunk in _careful(ref, cand, scales.shrink):
            _add(tally, chunk, start, atol * scales.shrink, rtol)
            start += chunk.error.size
    return tally


def _add(tally: _Tally, chunk: _Chunk, start: int, atol: float, rtol: float) -> None:
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
