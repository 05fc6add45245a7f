"""Compare what two random models give by its distribution: values under seeds cannot be compared one by one.

Each model runs under `SEEDS` seeds of its own. Two statistics compare the two groups of outputs: the energy distance
(Székely and Rizzo 2013), twice the mean distance between the groups less the mean distances within each, which
vanishes only for equal distributions; and the ratio of how far the outputs lie from their common mean, which sees
noise of another scale sooner. How large they get by chance a permutation test tells: the outputs are dealt anew to two
groups, `DEALS` times, and the models differ where no deal is as far apart as they are. Two equal distributions do so
with a probability of at most 2 / (`DEALS` + 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DEALS", "SEEDS", "differ"]

SEEDS = 16
DEALS = 9_999
_MOST = 1 << 16
"""Elements of an output that are looked at, evenly spread."""

Array = NDArray[Any]


def differ(ours: Sequence[Array], theirs: Sequence[Array], bound: float) -> bool:
    """Return whether two groups of outputs, each under seeds of its own, are of two distributions.

    ``bound`` is the relative error that rounding explains: noise of that size hides it. False where shapes differ.
    """
    if not ours or not theirs or ours[0].shape != theirs[0].shape or not ours[0].size:
        return False
    rows = np.stack([_flat(array) for array in (*ours, *theirs)])
    rng = np.random.default_rng(0)
    rows += rng.standard_normal(rows.shape) * bound * float(np.sqrt(np.mean(rows * rows)))
    squares = np.sum(rows * rows, axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * rows @ rows.T, 0))
    spread = np.log(np.maximum(np.linalg.norm(rows - rows.mean(axis=0), axis=1), np.finfo(np.float64).tiny))
    signs = np.ones(len(rows))
    signs[: len(ours)] = -1
    deals = rng.permuted(np.tile(signs, (DEALS, 1)), axis=1)

    def far(dealt: Array) -> tuple[Array, Array]:
        # Of groups of one size the energy distance is a constant less the sum of products of signs.
        return -np.einsum("ij,ij->i", dealt @ distances, dealt), np.abs(dealt @ spread)

    return any(bool(seen[0] > chance.max()) for seen, chance in zip(far(signs[None]), far(deals), strict=True))


def _flat(array: Array) -> Array:
    values = np.asarray(array).ravel()
    return values[:: max(1, len(values) // _MOST)].astype(np.float64)
