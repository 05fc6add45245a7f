"""Compare what is random by its distribution: values under seeds cannot be compared one by one.

Both sides run under the same seeds: where they take the same numbers, as two of one framework may, nothing but a fault
keeps them apart. Four statistics compare the two groups of values: the energy distance (Székely and Rizzo 2013), twice
the mean distance between the groups less the mean distances within each, which vanishes only for equal distributions;
the ratio of how far the values lie from their common mean, which sees noise of another scale sooner; that of how far
their largest elements do beside all others, which sees numbers of another kind (uniform ones of the same scale); and
how many values have their nearest one on their own side, which sees that the few a mask leaves possible are others.
How large they get by chance a permutation test tells: the two values of each seed are dealt anew to the two groups,
`DEALS` times.

Where few seeds leave it in doubt more of them tell, and what is called different has to be so once more, under seeds
that were not looked at before: two equal distributions are called different less than once in 80,000 times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from padiff.numerics import Array, in_reals

SEEDS = (16, 64)
"""Under how many seeds each side runs: more of them where fewer leave it in doubt."""
DEALS = 2_999
_RARE = 1 / 500
"""How often two groups of one distribution are so far apart that they are looked at once more: two in a thousand."""
_DOUBTFUL = 1 / 2
"""How often they are so far apart that more seeds are asked."""
_MOST = 1 << 16
"""Elements of a value that are looked at, evenly spread."""

Sample = Callable[[bool, range], Sequence[Array]]
"""Returns what a side gives under seeds, made `flat`; the flag is true for the reference's side."""


def differ(sample: Sample, bound: float) -> bool:
    """Return whether two sides give values of two distributions.

    ``bound`` is the relative error that rounding explains: noise of that size hides it, and sides that are so near
    under each seed are not told apart. False where shapes differ.
    """
    most = SEEDS[-1]
    for count in SEEDS:
        rare = _chance(sample, range(1, 1 + count), bound)
        if rare > _DOUBTFUL:
            return False
        if rare <= _RARE and _chance(sample, range(1 + most, 1 + most + count), bound) <= _RARE:
            return True
    return False


def _chance(sample: Sample, seeds: range, bound: float) -> float:
    """Return how often, at most, two groups of one distribution are as far apart as those under some seeds."""
    ours, theirs = sample(True, seeds), sample(False, seeds)
    if len(ours) != len(theirs) or not ours or ours[0].shape != theirs[0].shape or not ours[0].size:
        return 1.0
    rows = np.stack([in_reals(array).ravel() for array in (*ours, *theirs)])
    apart = np.linalg.norm(rows[len(ours) :] - rows[: len(ours)], axis=1)
    if np.all(apart <= bound * np.linalg.norm(rows[: len(ours)], axis=1)):
        return 1.0
    rng = np.random.default_rng(len(seeds))
    rows += rng.standard_normal(rows.shape) * bound * float(np.sqrt(np.mean(rows * rows)))
    squares = np.sum(rows * rows, axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * rows @ rows.T, 0))
    moved, least = rows - rows.mean(axis=0), np.finfo(np.float64).tiny
    spread = np.log(np.maximum(np.linalg.norm(moved, axis=1), least))
    shape = np.log(np.maximum(np.linalg.norm(moved * moved, axis=1), least)) - 2 * spread
    near = np.zeros_like(distances)
    near[np.arange(len(rows)), np.argmin(distances + np.diag(np.full(len(rows), np.inf)), axis=1)] = 1
    dealt = rng.choice((-1.0, 1.0), (DEALS, len(ours)))
    signs, deals = np.repeat((-1.0, 1.0), len(ours)), np.concatenate([dealt, -dealt], axis=1)

    def far(dealt: Array) -> tuple[Array, ...]:
        # Of groups of one size the energy distance is a constant less the sum of products of signs.
        energy, nearest = (np.einsum("ij,ij->i", dealt @ one, dealt) for one in (-distances, near))
        return energy, np.abs(dealt @ spread), np.abs(dealt @ shape), nearest

    each = list(zip(far(signs[None]), far(deals), strict=True))
    return len(each) * min((1 + int(np.sum(chance >= seen[0]))) / (1 + DEALS) for seen, chance in each)


def flat(array: Array) -> Array:
    """Return the elements of an array that are looked at: not as a view, which would keep them all."""
    values = np.asarray(array).ravel()
    step = max(1, len(values) // _MOST)
    return values if step == 1 else values[::step].copy()
