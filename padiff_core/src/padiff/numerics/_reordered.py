"""Find the order in which the rows and columns of one array make another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from padiff.numerics._dtypes import Array, in_reals
from padiff.numerics._rounding import SAME, epsilon

Rows = tuple[int, ...]
_SOME = 32
"""About so many rows are looked for: of another value next to none is found."""


def reordered(array: Array, orders: Sequence[Rows]) -> Array:
    """Return an array with its rows along each axis in an order; where that is empty, as they are."""
    for axis, order in enumerate(orders):
        array = array.take(order, axis) if order else array
    return array


def reorderings(
    ours: Array, theirs: Array, known: Sequence[Rows] = (), beside: Sequence[tuple[Array, Array]] = ()
) -> Iterator[tuple[Rows, ...]]:
    """Yield orders of rows and columns in which one array may be another of its shape: those that are ``known`` first.

    Rows are matched by a random projection of each; vectors ``beside`` tell rows apart that are the same. Both axes are
    in another order only where one of the orders is known. Whether an order is right, whoever asks has to look.
    """
    if ours.ndim == 0:
        return
    rows, columns = ([one for one in known if ours.shape[axis : axis + 1] == (len(one),)] for axis in (0, 1))
    columns = columns if ours.ndim > 1 else []
    yield from ((one, ()) if ours.ndim > 1 else (one,) for one in rows)
    yield from (((), one) for one in columns)
    for told in (beside, ()) if beside else ((),):
        for one in ((), *columns):
            found = _matched(reordered(ours, ((), one)), theirs, 0, told)
            yield (found, one) if ours.ndim > 1 else (found,)
    if ours.ndim > 1:
        yield from ((one, _matched(reordered(ours, (one,)), theirs, 1)) for one in ((), *rows))


def _matched(ours: Array, theirs: Array, along: int, beside: Sequence[tuple[Array, Array]] = ()) -> Rows:
    """Return which row of one array each row of another is, where both hold the same."""
    sides = zip((ours, theirs), zip(*beside, strict=True) if beside else ((), ()), strict=True)
    mine, yours = (np.argsort(_projected(one, along, vectors), kind="stable") for one, vectors in sides)
    rows = np.empty(len(mine), int)
    rows[yours] = mine
    return tuple(rows.tolist())


def _projected(array: Array, along: int, beside: Sequence[Array]) -> Array:
    """Return a number for each row of an array that only the same row has."""
    rows, draw = in_reals(np.moveaxis(array, along, 0)), np.random.default_rng(0).standard_normal
    rows = rows.reshape(array.shape[along], -1)
    found: Array = rows @ draw(rows.shape[1])
    for vector in beside:
        found = found + vector * draw()
    return found


def has_rows(array: Array, of: Array) -> bool:
    """Return whether an array holds the rows of another one along the last axis, in whatever order and among more."""
    if not of.size or not array.ndim or array.shape[-1:] != of.shape[-1:]:
        return False
    held, rows = (one.reshape(-1, one.shape[-1]).astype(np.float64) for one in (array, of))
    bound = SAME(epsilon(of.dtype)) * max(float(np.linalg.norm(rows, axis=1).max()), 1.0)
    some = rows[:: max(1, len(rows) // _SOME)]
    return all(np.linalg.norm(held - row, axis=1).min() <= bound for row in some)
