"""Find out how a value is spread over the ranks: what a framework says, else the reconstruction that fits.

Two things tell where nobody says: what the ranks hold (the same bits, or not), and the value that the other run holds
at the same place, its shape first. Where several reconstructions have that shape, the one that is nearest wins; one
that is only near is no proof, so the parts of a sum must give it but for rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.distributed._grid import Grid
from padiff.distributed._placements import REPLICATE, joined, joined_shape
from padiff.kinds import Placement
from padiff.numerics import SAME, difference, epsilon_of

__all__ = ["Spreading", "differing", "merged", "spread_of"]

Array = NDArray[Any]
Parts = Mapping[int, Array]

_PARTIAL = Placement("partial")
_MOST = 256
"""Reconstructions that are tried of one value."""


@attrs.frozen
class Spreading:
    """How a value is spread over all ranks, and how that is known."""

    placements: Mapping[str, Placement]
    """Axis of the grid -> how it lies along it."""
    inferred: bool = False
    unlike: tuple[int, ...] = ()
    """The ranks that hold something else than the first of their group, where the group's should hold the same."""


def merged(
    parts: Parts, grid: Grid, placements: Mapping[str, Placement], whole: tuple[int, ...] | None = None
) -> Array:
    """Return the whole value; raises ``ValueError`` where the parts do not fit."""
    values = dict(parts)
    for axis in grid.axes:
        placement = placements.get(axis, REPLICATE)
        values = grid.reduced(values, axis, partial(joined, placement=placement, whole=whole))
    return next(iter(values.values()))


def spread_of(
    parts: Parts,
    grid: Grid,
    known: Mapping[str, Placement],
    like: tuple[tuple[int, ...], Callable[[], Array | None]] | None = None,
    *,
    sums: bool = True,
) -> Spreading | None:
    """Return how a value is spread; None where that cannot be told.

    ``known`` is what the framework says; ``like`` the shape, and the value, that the other run holds at this place.
    ``sums`` says whether the ranks may hold parts of a sum: of a weight, or of what a model returns, they may not.
    """
    differ = {axis: differing(parts, grid, axis) for axis in grid.axes}
    options = {axis: list(_options(axis, parts, known, differ[axis], like is not None, sums)) for axis in grid.axes}
    cut = [axis for axis in grid.axes if any(len(group) < grid.size(axis) for group in grid.groups(list(parts), axis))]
    for axis in cut:  # a rank is missing, and with it its shard
        options[axis] = [how for how in options[axis] if how.kind == "replicate"]
    if any(not found for found in options.values()):
        return None
    told = all(axis in known or not differ[axis] for axis in grid.axes)
    tried = [
        dict(zip(options, one, strict=True)) for one in itertools.islice(itertools.product(*options.values()), _MOST)
    ]
    fitting = [one for one in tried if _shape(parts, grid, one) == (like[0] if like else _shape(parts, grid, one))]
    if like is None or not (fitting or cut):
        fitting = [one for one in tried if _shape(parts, grid, one) is not None and told]
    if not fitting:
        return None
    best = fitting[0]
    if len(fitting) > 1:
        best = _nearest(parts, grid, fitting, None if like is None else like[1]())
    unlike = [rank for axis, how in best.items() if how.kind == "replicate" for rank in differ[axis]]
    return Spreading(best, not told, tuple(sorted(set(unlike))))


def differing(parts: Parts, grid: Grid, axis: str) -> tuple[int, ...]:
    """Return the ranks that do not hold the bits of the first of their group along an axis."""
    return tuple(
        rank
        for group in grid.groups(list(parts), axis)
        for rank in group[1:]
        if not _same(parts[group[0]], parts[rank])
    )


def _same(one: Array, other: Array) -> bool:
    return one is other or (one.shape == other.shape and one.dtype == other.dtype and difference(one, other).equal)


def _options(
    axis: str, parts: Parts, known: Mapping[str, Placement], differ: Sequence[int], shaped: bool, sums: bool
) -> Iterator[Placement]:
    """Yield how a value may lie along an axis, the likelier first."""
    if axis in known:
        yield known[axis]
        return
    rank = max((part.ndim for part in parts.values()), default=0)
    if not differ:
        yield REPLICATE
    if shaped:
        yield from (Placement("shard", dim) for dim in range(rank))
        if differ:
            yield from (REPLICATE, _PARTIAL) if sums else (REPLICATE,)


def _shape(parts: Parts, grid: Grid, placements: Mapping[str, Placement]) -> tuple[int, ...] | None:
    shapes: dict[int, tuple[int, ...] | None] = {rank: part.shape for rank, part in parts.items()}
    for axis in grid.axes:
        how = placements.get(axis, REPLICATE)

        def of(group: list[Any], how: Placement = how) -> Any:
            return None if None in group else joined_shape(group, how)

        shapes = grid.reduced(shapes, axis, of)
    return next(iter(shapes.values()))


def _nearest(
    parts: Parts, grid: Grid, fitting: Sequence[Mapping[str, Placement]], like: Array | None
) -> dict[str, Placement]:
    """Return the reconstruction that is nearest to the other run's value; a sum only where it is that value."""
    without = [one for one in fitting if all(how.kind != "partial" for how in one.values())]
    if like is None:
        return dict((without or list(fitting))[0])
    bound = SAME(epsilon_of(like.dtype.name) or 0.0)
    best, least = dict((without or list(fitting))[0]), math.inf
    for one in fitting:
        with np.errstate(all="ignore"):
            apart = difference(like, merged(parts, grid, one)).rel_l2
        if apart < least and (one in without or apart <= bound):
            best, least = dict(one), apart
    return best
