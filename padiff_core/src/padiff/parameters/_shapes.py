"""Say in which orders of axes a parameter of one shape may hold what one of another shape does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache

Axes = tuple[int, ...]
"""The order of the axes of the shape that has more of them, those of length one left out; empty where in order."""
_MOST_AXES = 5
"""Axes of which every order is looked at."""


def bare(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without its axes of length one."""
    return tuple(size for size in shape if size != 1)


def _sides(reference: Sequence[int], candidate: Sequence[int]) -> list[tuple[int, ...]]:
    """Return two shapes without axes of length one, that with more axes first."""
    return sorted((bare(reference), bare(candidate)), key=len, reverse=True)


@cache
def layouts(reference: tuple[int, ...], candidate: tuple[int, ...], *, fixed: bool = False) -> Sequence[Axes]:
    """Return the orders of axes, as in `Link`, in which one shape may hold what another one does, the likeliest first.

    Axes that are joined or split stay in order, but for a matrix that is transposed, where they can, and for a stack of
    matrices that the other shape has side by side; what is ``fixed`` is as it is where it can.
    """
    fine, coarse = _sides(reference, candidate)
    found: list[Axes] = [()] if fine == coarse or is_joined(fine, coarse) else []
    turn = transposition(reference, candidate)
    if turn and not (fixed and (found or fine == coarse[::-1])):
        found.append(turn)
    if found and not (fixed and () in found):
        found += [order for order in _side_by_side(fine, coarse) if order not in found]
    return found if found and (fixed or len(coarse) < max(3, len(fine))) else every_order(reference, candidate) or found


def _side_by_side(fine: Sequence[int], coarse: Sequence[int]) -> Iterator[Axes]:
    """Yield the orders in which a matrix may hold those of a stack below or beside one another: as they are, or turned.

    The matrices stay in order, and each whole: queries, keys and values as ``(3, in, out)``, and a linear layer's.
    """
    if len(fine) == 3 and len(coarse) == 2:
        for x, y in ((1, 2), (2, 1)):
            if (fine[0] * fine[x], fine[y]) == tuple(coarse):
                yield (0, x, y) if x > y else ()
            if (fine[x], fine[0] * fine[y]) == tuple(coarse):
                yield x, 0, y


def transposition(reference: Sequence[int], candidate: Sequence[int]) -> Axes:
    """Return the order of axes in which one shape holds the transpose of a matrix, that may be split, of the other."""
    fine, coarse = _sides(reference, candidate)
    if len(coarse) != 2 or not is_joined(fine, coarse[::-1]):
        return ()
    start = next(at for at in range(1, len(fine)) if math.prod(fine[:at]) == coarse[1])
    return (*range(start, len(fine)), *range(start))


def every_order(reference: Sequence[int], candidate: Sequence[int]) -> Sequence[Axes]:
    """Return all orders of three or more axes in which those of one shape, joined side by side, make the other.

    But for the last two of four or more exchanged alone, of as many elements each: rows and columns of a kernel, which
    no framework holds so.
    """
    fine, coarse = _sides(reference, candidate)
    if len(fine) < 3:
        return []
    first, last = range(len(fine) - 2), (len(fine) - 1, len(fine) - 2)
    crossed = (*first, *last) if len(fine) > 3 and fine == coarse else None
    return [order for order in joined_orders(reference, candidate) if order != crossed]


def joined_orders(reference: Sequence[int], candidate: Sequence[int]) -> Sequence[Axes]:
    """Return all orders of axes in which those of one shape, joined side by side, make the other; as they are first."""
    fine, coarse = _sides(reference, candidate)
    if len(fine) > _MOST_AXES or math.prod(fine) != math.prod(coarse):
        return []
    orders = itertools.permutations(range(len(fine)))
    found = [order for order in orders if is_joined([fine[axis] for axis in order], coarse)]
    return [() if order == tuple(range(len(order))) else order for order in found]


def is_joined(fine: Sequence[int], coarse: Sequence[int]) -> bool:
    """Return whether some axes side by side, joined, make others: (32, 4, 8) makes (32, 32)."""
    rest = list(fine)
    for extent in coarse:
        size = 1
        while rest and size < extent:
            size *= rest.pop(0)
        if size != extent:
            return False
    return not rest


def extent(shape: Sequence[int], whole: Sequence[int], along: int = 0) -> int:
    """Return how much of an axis of a whole shape a part of it takes: one that is a single row may lack the axis."""
    lacking = along >= len(shape) or (along == 0 and bare(shape) == bare(whole[1:]))
    return 1 if lacking else shape[along]
