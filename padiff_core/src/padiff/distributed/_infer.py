"""Find out how a value is spread over the ranks: what a framework says, else the reconstruction that fits.

Two things tell where nobody says: what the ranks hold (the same bits, or not), and the value that the other run holds
at the same place, its shape first. Where several reconstructions have that shape, the one that is nearest wins; one
that is only near is no proof, so the parts of a sum must give it but for rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from padiff.distributed._expected import Expected, Shape
from padiff.distributed._grid import Grid
from padiff.distributed._placements import REPLICATE, joined, joined_shape
from padiff.kinds import Placement, shares_data
from padiff.numerics import Array, difference

Parts = Mapping[int, Array]
Ends = Mapping[str, bool] | None
"""Axis -> whether ranks have parts from both ends of what is spread along it, where that is known; None where what is
spread is no part of the data that all ranks are given."""

_PARTIAL = Placement("partial")
_PACKED = (2, 3)
"""Layers that one weight may hold behind each other, each of which is split: a gate and what it gates; q, k and v."""
_ROWS, _OTHER, _TORN = 2, 3, 4
"""How good a reconstruction is that may be the other run's value, with its rows in another order; that is another one;
that is of replicas that differ. 0 and 1 are those that are the other run's value."""
_FAR = 4.0
"""How many times nearer a sum must be than replicas that differ, to be taken where it is not the other run's value."""
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
    shards: tuple[str, ...] = ()
    """The axes along which sketches of shards add up: what they are of is no sum."""
    alike: tuple[str, ...] = ()
    """The axes along which replicas were sketched as parts of a batch: the first one's sketch is that of them all."""

    def kind(self, axis: str) -> str:
        """Return how it lies along an axis; what sketches add up to of shards is none of a sum."""
        return "shard" if axis in self.shards else self.placements.get(axis, REPLICATE).kind

    @property
    def split(self) -> list[str]:
        """Return the axes along which each rank has a part of the elements."""
        return [*self.shards, *(axis for axis, how in self.placements.items() if how.kind == "shard")]


def merged(
    parts: Parts,
    grid: Grid,
    placements: Mapping[str, Placement],
    whole: Shape | None = None,
    added: Array | None = None,
) -> Array:
    """Return the whole value; raises ``ValueError`` where the parts do not fit. ``added`` is as for `joined`."""
    return grid.folded(
        parts, lambda axis, group: joined(group, placements.get(axis, REPLICATE), whole, added, grid.size(axis))
    )


def spread_of(
    parts: Parts,
    grid: Grid,
    known: Mapping[str, Placement],
    expected: Expected | None = None,
    *,
    sums: bool = True,
    added: Array | None = None,
    shape: Shape | None = None,
    strides: Collection[int] = (),
    ends: Ends = None,
) -> Spreading | None:
    """Return how a value is spread; None where that cannot be told.

    ``known`` is what the framework says; ``expected`` what the other run holds at this place. ``sums`` says whether the
    ranks may hold parts of a sum: of a weight, or of what a model returns, they may not. ``shape`` is that of the
    whole, where it is known; ``strides`` say how often parts may come behind each other in it, ``ends`` along
    which axes ranks have parts from both ends, or have none.
    """
    differ = {axis: differing(parts, grid, axis) for axis in grid.axes}
    cut = _cut(parts, grid)
    tried = _ways(parts, grid, known, differ, shaped=expected is not None, sums=sums, ends=ends)
    told = all(axis in known or not differ[axis] for axis in grid.axes)
    tried = [(one, found) for one, found in tried if shape in (None, found)]
    fitting = [one for one, found in tried if expected is None or expected.fits(found)]
    if expected is not None and not fitting:
        # Layers that somebody splits by hand say nothing, which reads as if they were not split.
        unsaid = {axis: how for axis, how in known.items() if how != REPLICATE or not differ[axis]}
        inferred = (
            spread_of(parts, grid, unsaid, expected, sums=sums, added=added, shape=shape, strides=strides, ends=ends)
            if len(unsaid) < len(known)
            else None
        )
        if inferred is not None:
            return inferred
    if expected is None or not (fitting or cut):
        fitting = [one for one, _ in tried if told]
    if not fitting:
        return None
    nearest = partial(nearest_of, parts, grid, differ, expected=expected, added=added)
    best, same = nearest(fitting)
    if not same and expected is not None:
        strided = (one for how in fitting for one in _otherwise(how, known, {*_PACKED, *strides}, ends))
        packed = [one for one in itertools.islice(strided, _MOST) if _shape(parts, grid, one) is not None]
        found, same = nearest(packed) if packed else (best, False)
        best = found if same else best
    unlike = [rank for axis, how in best.items() if how.kind == "replicate" for rank in differ[axis]]
    return Spreading(best, not told, tuple(sorted(set(unlike))))


def _otherwise(
    how: Mapping[str, Placement], known: Mapping[str, Placement], strides: Collection[int], ends: Ends = None
) -> Iterator[dict[str, Placement]]:
    """Yield how a value may lie of which parts come behind each other on each rank, along axes of which nobody says.

    Or of which each rank has parts from both ends.
    """
    axes = [axis for axis, one in how.items() if one.kind == "shard" and axis not in known]
    open_ = [ends is not None and axis not in ends for axis in axes]
    ways = [
        sorted(itertools.product((1, *strides), (False, True) if free else (how[axis].ends,)))
        for axis, free in zip(axes, open_, strict=True)
    ]
    for chosen in itertools.product(*ways):
        further = dict(zip(axes, chosen, strict=True))
        found = {axis: attrs.evolve(how[axis], stride=count, ends=both) for axis, (count, both) in further.items()}
        if any(one != how[axis] for axis, one in found.items()):
            yield {**how, **found}


def ways_of(
    parts: Parts, grid: Grid, known: Mapping[str, Placement], strides: Collection[int]
) -> list[tuple[dict[str, Placement], Shape]]:
    """Return how a value may be spread that nobody could put together, and the shapes of what that makes."""
    ways = _ways(parts, grid, known, dict.fromkeys(grid.axes, (-1,)), shaped=True, sums=True)
    found = list(ways)
    for one in itertools.islice((one for how, _ in ways for one in _otherwise(how, known, strides, {})), _MOST):
        shape = _shape(parts, grid, one)
        found += [] if shape is None else [(one, shape)]
    return found


def _ways(
    parts: Parts,
    grid: Grid,
    known: Mapping[str, Placement],
    differ: Mapping[str, Sequence[int]],
    *,
    shaped: bool,
    sums: bool,
    ends: Ends = None,
) -> list[tuple[dict[str, Placement], Shape]]:
    """Return how a value may lie along all axes, the likelier first, and the shapes of what that makes."""
    rank = max((part.ndim for part in parts.values()), default=0)

    def along(axis: str) -> Iterator[Placement]:
        if axis in known:
            yield known[axis]
            return
        if not differ[axis]:
            yield REPLICATE
        if shaped:
            yield from (Placement("shard", dim, ends=bool(ends and ends.get(axis))) for dim in range(rank))
            if differ[axis]:
                yield from (REPLICATE, _PARTIAL) if sums else (REPLICATE,)
            if differ[axis] and sums and grid.copies(axis) > 1:  # how many tokens go to each expert
                yield from (Placement("sums", dim, copies=grid.copies(axis)) for dim in range(rank))

    options = {axis: list(along(axis)) for axis in grid.axes}
    for axis in _cut(parts, grid):  # a rank is missing, and with it its shard
        alone = axis not in known and shares_data(axis) and all(len(one) < 2 for one in grid.groups(list(parts), axis))
        options[axis] = [how for how in options[axis] if how.kind == "replicate" and not alone]
    every = itertools.islice(itertools.product(*options.values()), _MOST)
    found = [dict(zip(options, one, strict=True)) for one in every]
    shapes = [_shape(parts, grid, one) for one in found]
    return [(one, shape) for one, shape in zip(found, shapes, strict=True) if shape is not None]


def _cut(parts: Parts, grid: Grid) -> list[str]:
    """Return the axes along which a rank is missing."""
    return [axis for axis in grid.axes if grid.lacks(list(parts), axis)]


def differing(parts: Parts, grid: Grid, axis: str) -> tuple[int, ...]:
    """Return the ranks that do not hold the bits of the first of their group along an axis."""
    return tuple(
        rank
        for group in grid.groups(list(parts), axis)
        for rank in group[1:]
        if not is_replica(parts[group[0]], parts[rank])
    )


def is_replica(one: Array, other: Array) -> bool:
    """Return whether two ranks hold the same bits."""
    return one is other or (one.dtype == other.dtype and difference(one, other).equal)


def _shape(parts: Parts, grid: Grid, placements: Mapping[str, Placement]) -> tuple[int, ...] | None:
    def of(axis: str, group: list[Any]) -> Any:
        return None if None in group else joined_shape(group, placements.get(axis, REPLICATE))

    found: tuple[int, ...] | None = grid.folded({rank: part.shape for rank, part in parts.items()}, of)
    return found


def nearest_of(
    parts: Parts,
    grid: Grid,
    differ: Mapping[str, Sequence[int]],
    fitting: Sequence[Mapping[str, Placement]],
    *,
    expected: Expected | None,
    added: Array | None = None,
) -> tuple[dict[str, Placement], bool]:
    """Return the reconstruction that is nearest to the other run's value, and whether it is that value.

    A sum counts only where it is, or where it is far nearer than replicas that differ: behind a fault nothing is that
    value. Of replicas alone nobody asks. Several may be that value, where the other run is a job too: shards come
    before sums then, and replicas that differ are last.
    """
    without = [one for one in fitting if all(how.kind not in ("partial", "sums") for how in one.values())]
    best, least, same = dict((without or list(fitting))[0]), (_TORN, math.inf), False
    alone = len(fitting) == 1 and all(how.kind == "replicate" for how in best.values())
    for one in fitting if expected is not None and not alone else ():
        found = expected.nearest(merged(parts, grid, one, added=added)) if expected is not None else None
        if found is None or math.isnan(found.apart):
            continue
        torn = any(how.kind == "replicate" and differ[axis] for axis, how in one.items())
        other = _TORN if torn else _ROWS if found.rows else _OTHER
        rank = (other, 0.0 if other == _ROWS else found.apart)
        if found.same and not torn:
            rank = (int(one not in without), 0.0)
        elif one not in without:
            rank = (_TORN, found.apart * _FAR if without else math.inf)
        if rank < least:
            best, least, same = dict(one), rank, found.same
    return best, same


def behind(arrays: Mapping[int, Callable[[], Array]], grid: Grid) -> Spreading | None:
    """Return that the ranks' values lie one behind the other."""
    shapes = {one().shape for one in arrays.values()}
    alike = len(shapes) == 1 and len(shapes.pop()) > 0
    return Spreading(dict.fromkeys(grid.axes, Placement("shard", 0)), inferred=True) if alike else None
