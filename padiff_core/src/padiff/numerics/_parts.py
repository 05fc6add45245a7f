"""Compare the parts of a value by themselves that are far smaller than the rest: in its norm their errors are lost.

One tensor may hold boxes in pixels and scores of a hundredth, or two branches that were joined. A part is what lies at
some places of one axis, all of one order of magnitude, where there is more than an element or two: what is small by
chance is rounded as its neighbours are.
"""

from __future__ import annotations

import attrs
import numpy as np

from padiff.numerics._compare import difference
from padiff.numerics._dtypes import Array, is_float
from padiff.numerics._figures import Difference

_STEP = 32.0
"""How many times smaller than the largest a part is at least, and how far its own sizes reach."""
_STEPS = 6
"""Parts down to 1e-9 of the largest: what is smaller yet is what rounding, or an epsilon, left of zeros."""
_ROWS = 8
"""Elements at each place of an axis at least: fewer are small by chance."""
_SHARE = 8
"""A part is one in so many of the places at least, or so many times smaller than all that are larger."""
_MOST, _FEW = 1 << 16, 1 << 6
"""Elements by which the sizes along an axis are told, and how many of them at each place at least."""


@attrs.frozen
class SmallPart:
    """Some places along one axis of a value, and how far apart two values are there."""

    axis: int
    places: tuple[int, ...]
    difference: Difference = attrs.field(eq=False)

    def of(self, array: Array) -> Array:
        """Return this part of an array."""
        return np.take(array, self.places, self.axis)


def parts_apart(reference: Array, candidate: Array) -> list[SmallPart]:
    """Return the parts of a value that are far smaller than the rest, in which two are apart; none of other shapes."""
    found: list[SmallPart] = []
    if reference.shape != candidate.shape or not is_float(reference):
        return found
    for axis, length in enumerate(reference.shape):
        sizes = _sizes(reference, axis) if length > 1 and reference.size >= _ROWS * length else np.ones(1)
        if not (sizes * _STEP < sizes.max()).any():
            continue
        with np.errstate(divide="ignore"):
            steps = np.floor(np.log(sizes.max() / sizes) / np.log(_STEP))
        for step in range(1, _STEPS + 1):
            places = np.flatnonzero(steps == step)
            if places.size and _stands_apart(sizes[places], sizes[steps < step]):
                apart = difference(np.take(reference, places, axis), np.take(candidate, places, axis))
                if not apart.equal:
                    found.append(SmallPart(axis, tuple(places.tolist()), apart))
    return found


def _stands_apart(sizes: Array, larger: Array) -> bool:
    """Return whether some places are a part of their own: the smallest of many that vary are small by chance."""
    many = sizes.size * _SHARE >= sizes.size + larger.size
    return many or bool(sizes.max() * _SHARE <= larger.min())


def _sizes(array: Array, axis: int) -> Array:
    """Return the root mean square at each place of an axis, of a large array as far as some of its elements tell."""
    rows = np.moveaxis(array, axis, 0)
    most = max(_FEW, _MOST // len(rows))
    for other in sorted(range(1, rows.ndim), key=lambda one: -rows.shape[one]):
        step = max(1, rows.size // len(rows) // most)
        rows = rows[(slice(None),) * other + (slice(None, None, step),)]
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    flat[~np.isfinite(flat)] = 0.0
    sizes: Array = np.sqrt(np.einsum("ij,ij->i", flat, flat) / max(flat.shape[1], 1))
    return sizes
