"""Tell what says the same in the candidate's own spelling, and is left as it is: a mask, an index, another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Tensor
from padiff.alignment import Pair
from padiff.forcing._checks import Spot, Values
from padiff.numerics import SAME, difference, epsilon, same_numbers
from padiff.recording import marks

_MASKED = -1e3


def keeps_its_own(spot: Spot, reference: NDArray[Any], tensor: Tensor) -> bool:
    """Return whether a different value is left as it is: it may say the same in the candidate's own spelling."""
    candidate = tensor.view()
    if spot.reference.differentiable:  # in a replay all of the candidate is
        return _is_masked_before(spot, reference, candidate)
    return says_the_same(spot, reference, candidate)


def says_the_same(spot: Spot, reference: NDArray[Any], candidate: NDArray[Any]) -> bool:
    """Return whether what a call is given may say the same in another spelling: a mask, or an index."""
    if spot.what == "output" or reference.shape != candidate.shape or _is_complex(reference, candidate):
        return False
    if reference.dtype.kind == "b":
        return candidate.dtype.kind == "b" and bool((reference != candidate).all())
    if reference.dtype.kind in "iu":
        kinds = spot.pair.reference.module.kind, spot.pair.candidate.module.kind
        return spot.reference.path != spot.candidate.path and (kinds[0] is None or kinds[0] != kinds[1])
    ours, theirs = (np.asarray(array, dtype=np.float32) for array in (reference, candidate))
    if _leaves_or_masks(ours) and _leaves_or_masks(theirs):
        return bool(((ours == 0) == (theirs == 0)).all())
    added, told = (ours, theirs) if _leaves_or_masks(ours) else (theirs, ours)
    return is_added_mask(added) and marks(told) and len({*((added == 0) == (told == 0)).flat}) == 1


def is_turned(spot: Spot, reference: NDArray[Any], candidate: NDArray[Any]) -> bool:
    """Return whether truths that a call is given mean the reverse (whom to show, not to hide), some wrongly.

    They differ mostly, and more than by chance: a mask that hides nothing is wrong of all that the other one hides.
    """
    both = spot.what == "input" and reference.dtype.kind == candidate.dtype.kind == "b"
    if not both or reference.shape != candidate.shape:
        return False
    apart = float((reference != candidate).mean())
    return 1 / 2 < apart < 1 and float((reference & candidate).mean()) < float(reference.mean() * candidate.mean())


def is_added_mask(value: NDArray[Any]) -> bool:
    """Return whether a value hides something of what it is added to, and leaves the rest as it is."""
    return _leaves_or_masks(np.asarray(value, dtype=np.float32)) and bool(value.any())


def _leaves_or_masks(value: NDArray[Any]) -> bool:
    return bool(((value == 0) | (value <= _MASKED)).all())


def _is_masked_before(spot: Spot, reference: NDArray[Any], candidate: NDArray[Any]) -> bool:
    """Return whether one side masked what a call is given, where the other one gives the mask in one more input."""
    if not _are_numbers(spot, reference, candidate):
        return False
    sides = [np.asarray(array, dtype=np.float32) for array in (reference, candidate)]
    masked = [side <= _MASKED for side in sides]
    if masked[0].any() == masked[1].any():
        return False
    pair, bare = spot.pair, int(masked[0].any())
    given = (pair.reference, pair.candidate)[bare].inputs
    if len(given) == len(pair.inputs):
        return False
    kept = ~(masked[0] | masked[1])
    return bool(kept.any()) and difference(sides[0][kept], sides[1][kept]).rel_l2 <= SAME(epsilon(reference.dtype))


def with_mask_kept(spot: Spot, reference: NDArray[Any], candidate: NDArray[Any], values: Values) -> NDArray[Any] | None:
    """Return the reference's value under the candidate's mask, where the reference's call is given a mask beside it.

    What is wrong in the rest is no reason to take the mask away: the candidate's call would show what it should not.
    """
    masked = candidate <= _MASKED if _are_numbers(spot, reference, candidate) else np.zeros(0, bool)
    if masked.all() or not masked.any() or (reference <= _MASKED).any():
        return None
    tied = {i for i, _ in spot.pair.inputs}
    beside = [values.value(leaf) for i, leaf in enumerate(spot.pair.reference.inputs) if i not in tied]
    marked = any(one is not None and (one.dtype.kind == "b" or is_added_mask(one)) for one in beside)
    return np.where(masked, candidate, reference).astype(reference.dtype) if marked else None


def _are_numbers(spot: Spot, reference: NDArray[Any], candidate: NDArray[Any]) -> bool:
    alike = reference.shape == candidate.shape and reference.dtype.kind == "f"
    return spot.what == "input" and alike and not _is_complex(candidate)


def gives_alike(pair: Pair, tensors: Sequence[Tensor], values: Values) -> bool:
    """Return whether a call whose outputs have other shapes gives the reference's numbers, as far as sums tell."""
    both = [(values.value(leaf), tensor) for leaf, tensor in zip(pair.reference.outputs, tensors, strict=False)]
    return bool(both) and all(value is not None and tensor.read(same_numbers, value) for value, tensor in both)


def _is_complex(*arrays: NDArray[Any]) -> bool:
    return any(array.dtype.kind == "c" for array in arrays)
