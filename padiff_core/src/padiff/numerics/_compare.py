"""Compare two arrays: by two figures, by a rule, by a sample."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from padiff.numerics._careful import careful
from padiff.numerics._dtypes import Array, Seen, is_exact, same_bytes, work_dtype
from padiff.numerics._figures import Difference
from padiff.numerics._light import light, small
from padiff.numerics._rounding import EXACT, RANDOM, ROUNDING, epsilon
from padiff.numerics._tally import tallied

_GOLDEN = (math.sqrt(5) - 1) / 2
_MODES = ("strict", "mean")
_DROWNING = 1e3
"""Root mean square above which large numbers may be a mask's, such as -1e4 or -1e9, or stand for infinity; and how
much larger they are."""


def difference(reference: ArrayLike, candidate: ArrayLike, seen: Seen | None = None) -> Difference:
    """Return the cheap figures of two arrays of any shape, layout and numeric dtype.

    Equal bits end it; then one pass in the arrays' own precision, squares summed by chunk in float32 (float64
    for wider types) and over the chunks in float64; where these sums overflow, vanish or meet NaN, a walk in
    float64 decides. ``rel_l2`` is right to 1e-3 of itself wherever float64 holds it. Raises ``TypeError`` for
    non-numeric arrays. Huge numbers that agree, of a mask say, are left out of ``rel_l2``, ``max_abs`` and
    ``scale``. ``seen`` is told which bytes lie in the cache (see `Seen`), if any.
    """
    ref, cand = np.asarray(reference), np.asarray(candidate)
    few = small(ref, cand)
    if few is not None:
        return _unmasked(ref, cand, few)
    work = work_dtype(ref, cand)
    figures: dict[str, Any] = {
        "shape_equal": ref.shape == cand.shape,
        "dtype_equal": ref.dtype == cand.dtype or ref.dtype.newbyteorder("=") == cand.dtype.newbyteorder("="),
        "count": ref.size,
    }
    if ref.shape != cand.shape:
        return Difference(equal=False, rel_l2=math.inf, max_abs=math.inf, scale=math.nan, nan_mismatch=False, **figures)
    if ref.size == 0 or same_bytes(ref, cand, seen):
        return Difference(equal=True, rel_l2=0.0, max_abs=0.0, scale=math.nan, nan_mismatch=False, **figures)
    sums = None if is_exact(ref, cand) or work.char in "gG" else light(ref, cand, work, seen)
    if sums is not None:
        peak, error, size = sums
        scale = size / math.sqrt(ref.size)
        found = Difference(
            equal=peak == 0.0, rel_l2=error / size, max_abs=peak, scale=scale, nan_mismatch=False, **figures
        )
        return _unmasked(ref, cand, found)
    full = tallied(ref, cand)
    found = Difference(
        equal=full.max_abs == 0.0,
        rel_l2=full.rel_l2,
        max_abs=full.max_abs,
        scale=full.norm / math.sqrt(ref.size),
        nan_mismatch=full.mismatched,
        **figures,
    )
    return _unmasked(ref, cand, found)


def _unmasked(ref: Array, cand: Array, found: Difference) -> Difference:
    """Return the figures without the huge elements that both sides have alike: in their norm all else is lost.

    Of what is not finite they say how many elements there are on either side.
    """
    if found.nan_mismatch:
        ours, theirs = (one.size - int(np.count_nonzero(np.isfinite(one))) for one in (ref, cand))
        return attrs.evolve(found, not_finite=(ours, theirs))
    if found.equal or not found.scale > _DROWNING or is_exact(ref, cand):
        return found
    if {ref.dtype.kind, cand.dtype.kind} & set("biuc"):
        return found
    with np.errstate(all="ignore"):
        masked = (np.abs(ref) >= _DROWNING) & (
            np.abs(cand - ref) <= EXACT(max(epsilon(ref.dtype), epsilon(cand.dtype))) * np.abs(ref)
        )
    if not masked.any() or masked.all():
        return found
    rest = difference(ref[~masked], cand[~masked])
    if rest.equal or not rest.scale * _DROWNING < found.scale:
        return found
    return attrs.evolve(found, rel_l2=rest.rel_l2, max_abs=rest.max_abs, scale=rest.scale)


def are_random(first: Array, second: Array) -> bool:
    """Return whether what one call gave under two seeds is further apart than kernels make it: see `RANDOM`."""
    return difference(first, second).rel_l2 > RANDOM(epsilon(first.dtype))


def root_mean_square(array: Array) -> float:
    """Return the root mean square of real numbers, 0 of none; in float32, whose precision a magnitude does not need."""
    flat = np.asarray(array, np.float32).ravel(order="K")
    return float(np.sqrt(np.dot(flat, flat) / max(flat.size, 1)))


def same_numbers(reference: ArrayLike, candidate: ArrayLike) -> bool:
    """Return whether two arrays hold the same numbers, in whatever order, as far as their sums and norms tell.

    Of what is not finite there has to be as much.
    """
    ref, cand = np.asarray(reference), np.asarray(candidate)
    if ref.size != cand.size:
        return False
    bound = ROUNDING(max(epsilon(ref.dtype), epsilon(cand.dtype)))
    ours, theirs = (_finite(one) for one in (ref, cand))
    if ours.size != theirs.size:
        return False
    size = float(np.linalg.norm(ours))
    norms, sums = abs(float(np.linalg.norm(theirs)) - size), abs(float(theirs.sum() - ours.sum()))
    return norms <= bound * size and sums <= bound * size * math.sqrt(ours.size)


def _finite(array: Array) -> NDArray[np.float64]:
    """Return all finite numbers of an array, in float64; of complex ones both parts."""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    found = np.stack([one.astype(np.float64).ravel() for one in parts])
    finite: NDArray[np.float64] = found[np.isfinite(found)]
    return finite


def beside_masks(reference: ArrayLike, candidate: ArrayLike) -> Difference | None:
    """Return the figures of what no mask drowns, where both sides drown the same elements, by whatever number.

    None where they drown none, all, or not the same: -1e4 and -3.4e38 are one mask, at other places they are another.
    """
    ref, cand = np.asarray(reference), np.asarray(candidate)
    if ref.shape != cand.shape or {ref.dtype.kind, cand.dtype.kind} & set("biuc"):
        return None
    hidden = ref <= -_DROWNING
    if not hidden.any() or hidden.all() or (hidden != (cand <= -_DROWNING)).any():
        return None
    return difference(ref[~hidden], cand[~hidden])


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
    work_dtype(ref, cand)
    if ref.shape != cand.shape:
        return False
    if ref.size == 0 or same_bytes(ref, cand):
        return True
    error = size = 0.0
    compared = ref.size
    with np.errstate(all="ignore"):
        for chunk in careful(ref, cand, 1.0):
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
    work_dtype(values, values)
    places = places_of_sample(values.size, count)
    picked = values.reshape(-1)[places] if values.flags.c_contiguous else values[np.unravel_index(places, values.shape)]
    if picked.dtype.kind == "c":
        return picked.astype(np.complex128).view(np.float64)
    return picked.astype(np.float64)


@lru_cache(maxsize=256)
def places_of_sample(size: int, count: int = 64) -> NDArray[np.intp]:
    """Return the places of a sample in a flat array."""
    if size <= count:
        return np.arange(size)
    steps = np.arange(count)
    return ((steps + (steps * _GOLDEN) % 1.0) * (size / count)).astype(np.intp)
