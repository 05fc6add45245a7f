"""Tell which positions of a value are hidden: no gradient comes to any element there."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def hidden_positions(zero: NDArray[np.bool_]) -> tuple[tuple[int, ...], NDArray[np.bool_]] | None:
    """Return one axis, or two, and by these the positions at which all elements are zeros; None where there are none.

    Of two axes, such as the lines of a batch and their words, only where they tell of more than one.
    """
    best, most = None, 0.0
    for count in (1, 2):
        for axes in combinations(range(zero.ndim), count):
            hidden = np.asarray(zero.all(axis=tuple(axis for axis in range(zero.ndim) if axis not in axes)))
            share = float(hidden.mean())
            if most < share < 1:
                best, most = (axes, hidden), share
    return best
