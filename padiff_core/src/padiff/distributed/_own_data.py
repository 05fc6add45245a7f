"""Say of a value that each rank makes of data of its own that it should be made of the data of all."""

from __future__ import annotations

import numpy as np

from padiff.distributed._expected import Expected
from padiff.distributed._merged_step import Parts
from padiff.distributed._reductions import is_same, other_value
from padiff.numerics import Array
from padiff.report import Cause


def loss_of_each(parts: Parts, expected: Expected) -> Cause | None:
    """Return that each rank's loss sends a multiple of its own of what the other side's sends there, where it is so."""
    ours, whole = parts.value(), other_value(parts, expected)
    if whole is None or ours.shape != whole.shape:
        return None
    shares, times = parts.shares(ours), {}
    for rank, right in parts.shares(whole).items():
        own = shares[rank]
        if right is None or own is None or not right.any():
            return None
        times[rank] = float((own * right).sum()) / float((right * right).sum())
        if not is_same(right * times[rank], own):
            return None
    shown = [float(f"{one:.4g}") for one in times.values()]
    if len(set(shown)) == 1:
        return None
    return Cause("loss_of_each_rank", {"ranks": list(times), "times": shown}, verified=True)


def normalized_by_each(parts: Parts, expected: Expected) -> Cause | None:
    """Return that each rank normalizes by statistics of its own, where it is so.

    What it gives is the other side's part then, but for a factor and an offset of each channel: on each rank others.
    """
    whole, arrays = other_value(parts, expected), parts.read()
    shares = {} if whole is None else parts.shares(whole)
    for axis in (1, -1):
        found = [_affine(share, arrays[rank], axis) for rank, share in shares.items()]
        known = [one for one in found if one is not None]
        if known and len(known) == len(found) and not all(is_same(known[0], one) for one in known[1:]):
            return Cause("normalized_by_each", {"ranks": sorted(arrays)}, verified=True)
    return None


def _affine(share: Array | None, own: Array, axis: int) -> Array | None:
    """Return the factor and the offset of each channel that make a value of another; None where none do."""
    if share is None or share.shape != own.shape or own.ndim < 2:
        return None
    given, made = (np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1).astype(np.float64) for one in (share, own))
    mean = given.mean(1, keepdims=True)
    squares = np.square(given - mean).sum(1, keepdims=True)
    factor = ((given - mean) * made).sum(1, keepdims=True) / np.where(squares, squares, 1)
    offset = made.mean(1, keepdims=True) - factor * mean
    right = is_same((factor * given + offset).astype(own.dtype), made.astype(own.dtype))
    return np.concatenate([factor, offset]).astype(own.dtype) if right else None
