"""Say how one parameter may hold others as its rows, along whichever of its axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from padiff.parameters._shapes import bare
from padiff.parameters._units import Held

Ways = list[list[Held]]
"""Of each parameter, the ways in which it may lie."""


def as_rows(wholes: Sequence[Held], parts: Sequence[Held]) -> tuple[Ways, list[Held]] | None:
    """Return how parameters may lie so that they hold others one behind the other, and how these; None if they do not.

    Parts of one shape are a row each. A matrix beside vectors has a row for each of its columns, which are as long as
    they. What has other sizes lies number by number, in one row.
    """
    straight = [part if len(part.shape) == 1 else _straight(part) for part in parts]
    parts = [part for part in straight if part is not None]
    sizes = (sum(math.prod(one.shape) for one in some) for some in (wholes, parts))
    if len(parts) < len(straight) or len({*sizes}) > 1:
        return None
    lie = _side_by_side(parts)
    shape = lie[0].shape[-1:] if lie and len({bare(part.shape) for part in parts}) > 1 else bare(parts[0].shape)
    ways = [[] if lie is None else [*_in_rows(whole, shape)] for whole in wholes]
    if lie is not None and all(ways):
        return ways, lie
    return [[*_in_one_row(whole)] for whole in wholes], [_flat(part) for part in parts]


def _side_by_side(parts: Sequence[Held]) -> list[Held] | None:
    """Return parts as rows of one length, None where they have none in common."""
    if len({bare(part.shape) for part in parts}) == 1:
        return [_flat(part) for part in parts]
    vectors = {part.shape for part in parts if len(part.shape) == 1}
    if len(vectors) != 1 or any(part.shape[:1] not in vectors for part in parts):
        return None
    return [part if len(part.shape) == 1 else _of_columns(part) for part in parts]


def _of_columns(part: Held) -> Held:
    """Return a layer's weight with a row for each input, and each element of its kernel."""
    count = len(part.shape)
    return part.lying(merge=None if count == 2 else (1, count - 1), transpose=(1, 0))


def _straight(part: Held) -> Held | None:
    """Return what lies with its axes in another order at most, so that these may be joined next; None of all else."""
    where = part.part
    if where.cut or where.flip or where.merge is not None or where.blocks is not None:
        return None
    if where.transpose is None:
        return part
    first = where.order or range(len(where.transpose))
    return part.lying(order=tuple(first[axis] for axis in where.transpose), transpose=None)


def _in_rows(whole: Held, row: tuple[int, ...]) -> Iterator[Held]:
    """Yield a parameter in rows that lie along some of its axes, one or several side by side: the last ones first."""
    shape, axes = whole.shape, range(len(whole.shape))
    runs = (tuple(axes[start:stop]) for start in axes[::-1] for stop in range(start + 1, len(shape) + 1))
    joined = (run for run in runs if math.prod(shape[axis] for axis in run) == math.prod(row))
    apart = itertools.permutations(axes, len(row))
    found = (*joined, *(some for some in apart if tuple(shape[axis] for axis in some) == row))
    for inside in dict.fromkeys(some for some in found if 1 not in (shape[some[0]], shape[some[-1]])):
        rest = [axis for axis in axes if axis not in inside]
        order = (*rest, *inside)
        moved = {} if order == (*axes,) else {"transpose": order} if len(order) == 2 else {"order": order}
        if rest:
            yield whole.lying(**moved, merge=None if len(order) == 2 else (len(rest), len(inside)))


def _in_one_row(whole: Held) -> Iterator[Held]:
    """Yield a parameter number by number, as it lies and, where it is a matrix, column by column."""
    yield _flat(whole)
    if len(bare(whole.shape)) == 2 == len(whole.shape):
        yield whole.lying(order=(1, 0), merge=(2,))


def _flat(held: Held) -> Held:
    return held if len(held.shape) == 1 else held.lying(merge=(len(held.shape),))
