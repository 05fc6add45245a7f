"""List the orders in which one value may hold what another one does, by their shapes alone."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np

from padiff.recording import Fold, Order

Axes = tuple[int, ...]

_FEW = 3
"""So many axes are one in whatever order: a batch, and the rows and columns of a map. More of them leave too many."""


@cache
def orders_between(ours: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[Axes, ...]:
    """Return the permutations that take one shape to the other, those first that move the fewest axes past others.

    Axes of extent 1 stay in their order among themselves: moving them past each other changes nothing.
    """
    if sorted(ours) != sorted(theirs):
        return ()
    found: list[Axes] = [()]
    for extent in ours:
        found = [
            (*begun, axis)
            for begun in found
            for axis, other in enumerate(theirs)
            if other == extent and axis not in begun and (extent != 1 or all(theirs[a] != 1 or a < axis for a in begun))
        ]
    return tuple(sorted(found, key=_inversions))


@cache
def folds_between(ours: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[Order, ...]:
    """Return the orders that take one shape to the other where one side joins axes of the other's.

    Axes of extent 1 are none.
    """
    long, short = ([size for size in shape if size != 1] for shape in (theirs, ours))
    back = len(long) < len(short)
    long, short = (short, long) if back else (long, short)
    if math.prod(long) != math.prod(short) or not all(long):
        return ()
    found: list[tuple[list[tuple[int, ...]], list[int]]] = [([], list(range(len(long))))]
    for size in short:
        found = [
            ([*groups, group], [axis for axis in left if axis not in group])
            for groups, left in found
            for count in range(1, len(left) + 1)
            for group in (itertools.permutations if count <= _FEW else itertools.combinations)(left, count)
            if math.prod(long[axis] for axis in group) == size
        ]
    orders = []
    for groups, _ in sorted(found, key=lambda one: _inversions(tuple(itertools.chain(*one[0])))):
        axes, counts = tuple(itertools.chain(*groups)), iter(map(len, groups))
        joined = tuple(next(counts) if size != 1 else 0 for size in (theirs if back else ours))
        apart = tuple(int(size != 1) for size in (ours if back else theirs))
        if back:
            sizes = tuple(long[axis] for axis in axes)
            orders.append(Order(tuple(np.argsort(axes).tolist()), fold=Fold(joined, apart, sizes)))
        else:
            orders.append(Order(axes, fold=Fold(apart, joined, tuple(long))))
    return tuple(orders)


def _inversions(axes: Axes) -> tuple[int, Axes]:
    return sum(a > b for i, a in enumerate(axes) for b in axes[i + 1 :]), axes
