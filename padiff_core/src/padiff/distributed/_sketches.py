"""Put sketches of what the ranks hold together: those of shards and of summands add up, those of replicas are alike."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from padiff.distributed._expected import Expected
from padiff.distributed._grid import Grid
from padiff.distributed._infer import Spreading, differing, is_replica, merged, nearest_of, spread_of
from padiff.distributed._placements import REPLICATE, is_part_of
from padiff.kinds import UNKNOWN, Placement, parts_of_data, shares_data
from padiff.numerics import ACCUMULATED, Array, epsilon_of
from padiff.trace import InShard, Lent, Summary, Trace

Arrays = dict[int, Callable[[], Array]]
"""Rank -> what reads what it holds of a value."""


@attrs.frozen
class Held:
    """What reads a value of a rank's trace."""

    trace: Trace
    key: int

    def __call__(self) -> Array:
        """Return the value."""
        return self.trace.array(self.key)

    @property
    def lent(self) -> Lent | None:
        """Return what reads it in another process too, or None."""
        return self.trace.store.lent(self.key)

    @property
    def sum(self) -> int | None:
        """Return the checksum of its bytes, where that is written."""
        lent = self.lent
        return lent.placed.sum if isinstance(lent, InShard) else None


class Sketches(Arrays):
    """What reads the sketches of what ranks hold; their summaries tell the rest."""

    def __init__(self, summaries: Mapping[int, Summary]) -> None:
        super().__init__({rank: partial(_sketch, one) for rank, one in summaries.items()})
        self.summaries = dict(summaries)

    def add_nothing(self, rank: int) -> None:
        """Let a rank hold zeros."""
        one = next(iter(self.summaries.values()))
        none = attrs.evolve(one, norm=0.0, nans=0, infinities=0, sample=None, sketch=np.zeros_like(one.sketch))
        self.summaries[rank] = none
        self[rank] = partial(_sketch, none)


def _sketch(summary: Summary) -> Array:
    assert summary.sketch is not None
    return summary.sketch.astype(np.float64)  # many are added up


def gathered(held: Mapping[int, tuple[Trace, int | None]]) -> Arrays | None:
    """Return what reads a value on the ranks, of which each has it in a trace under a key; None where one has not."""
    if all(key is not None and key >= 0 for _, key in held.values()):
        return {rank: Held(trace, key) for rank, (trace, key) in held.items() if key is not None}
    summaries = {rank: trace.summaries.get(0 if key is None else key) for rank, (trace, key) in held.items()}
    found = {rank: one for rank, one in summaries.items() if one is not None and one.sketch is not None}
    return Sketches(found) if found and len(found) == len(held) else None


def with_nothing(
    traces: Mapping[int, Trace], keys: Mapping[int, int | None], shapes: Mapping[int, tuple[int, ...]]
) -> Arrays:
    """Return gradients as far as they were kept; where others have one, a rank that ran without has nothing."""
    found = gathered({rank: (traces[rank], key) for rank, key in keys.items() if key is not None})
    if not found:
        return {}
    for rank, key in keys.items():
        if key is None and traces[rank].gradients and rank in shapes:
            if isinstance(found, Sketches):
                found.add_nothing(rank)
            else:
                found[rank] = partial(np.zeros, shapes[rank], np.float32)
    return {rank: found[rank] for rank in keys if rank in found} if type(found) is dict else found


def were_reduced(traces: Mapping[int, Trace], grid: Grid, axis: str) -> bool:
    """Return whether gradients of parameters that all ranks have were recorded after ranks with other data met."""
    for path in next(iter(traces.values())).parameter_gradients:
        arrays = gathered({rank: (trace, trace.parameter_gradients.get(path)) for rank, trace in traces.items()})
        if arrays and any(part.any() for part in read(arrays).values()):
            return not differing(read(arrays), grid, axis)
    return False


def read(arrays: Mapping[int, Callable[[], Array]]) -> dict[int, Array]:
    """Return what the ranks hold; of replicas one is held."""
    known: dict[int, Array] = {}
    found = {}
    for rank, one in arrays.items():
        part, name = one(), one.sum if isinstance(one, Held) else None
        first = part if name is None else known.setdefault(name, part)
        found[rank] = first if is_replica(first, part) else part
    return found


def leading(arrays: Mapping[int, Callable[[], Array]], grid: Grid, placements: Mapping[str, Placement]) -> Arrays:
    """Return of replicas what the first rank holds of each."""
    found = dict(arrays)
    for axis in grid.axes:
        if placements.get(axis, REPLICATE).kind == "replicate":
            found = {group[0]: found[group[0]] for group in grid.groups(found, axis)}
    return found


def shapes_of(arrays: Arrays) -> dict[int, tuple[int, ...]]:
    """Return the shapes of what the ranks hold."""
    held = arrays.summaries if isinstance(arrays, Sketches) else read(arrays)
    return {rank: one.shape for rank, one in held.items()}


def spread_over(
    arrays: Arrays,
    grid: Grid,
    known: Mapping[str, Placement],
    expected: Expected | None,
    *,
    sums: bool = True,
    batch: bool = False,
    **further: Any,
) -> Spreading | None:
    """Return how a value is spread; None where that cannot be told. See `spread_of`, which ``further`` is for.

    ``batch`` says that ranks with data of their own sketched it as parts of one batch, where nobody says otherwise.
    """
    if not isinstance(arrays, Sketches):
        return spread_of(read(arrays), grid, known, expected, sums=sums, **further)
    summaries = list(arrays.summaries.values())
    ranges = any(how.kind == "range" for how in known.values())
    if len({(None if ranges else one.shape, one.whole) for one in summaries}) > 1:
        return None
    parts = read(arrays)
    differ = {axis: differing(parts, grid, axis) for axis in grid.axes}
    batched = _cut_data(summaries[0], grid, known) if batch else []
    same = [axis for axis in batched if _replicated(arrays.summaries, grid, axis)]
    if any(axis != UNKNOWN for axis in same):
        return None  # each at another place of a batch that is none
    as_here = expected is not None and expected.of == summaries[0].shape
    alike = tuple(axis for axis in batched if axis == UNKNOWN and (same or as_here))
    mine = _whole(summaries[0], alike, grid)
    options: dict[str, list[Placement]] = {}
    shards = []
    for axis in grid.axes:
        cut, split = grid.lacks(list(parts), axis), axis in batched
        if axis in alike:
            found = None if cut else ([REPLICATE], False)
        elif split and axis == UNKNOWN and (expected is None or expected.of != mine):
            found = None  # no parts of a batch, for all that is known
        else:
            found = _ways(known.get(axis), expected, mine, split=split, cut=cut, differs=bool(differ[axis]), sums=sums)
        if found is None:
            return None
        options[axis], adds = found
        if adds and summaries[0].whole is None:
            return None  # nobody knew where the shards lie
        shards += [axis] if adds else []
    told = all(axis in known or not differ[axis] for axis in grid.axes)
    ways = [dict(zip(options, one, strict=True)) for one in itertools.product(*options.values())]
    if not ways:
        return None
    best, _ = nearest_of(parts, grid, differ, ways, expected=expected)
    differ |= {axis: _unlike(arrays.summaries, grid, axis) for axis in alike}
    unlike = {rank for axis, how in best.items() if how.kind == "replicate" for rank in differ[axis]}
    return Spreading(best, not told, tuple(sorted(unlike)), tuple(shards), alike)


def _cut_data(summary: Summary, grid: Grid, known: Mapping[str, Placement]) -> list[str]:
    """Return the axes whose ranks sketched a value as parts of the data that they share."""
    if not summary.whole or not summary.size:
        return []
    found = [axis for axis in parts_of_data(grid.axes) if axis not in known]
    said = [axis for axis, how in known.items() if how.kind == "shard"]
    there = math.prod(map(grid.size, [*said, *found]))
    for axis in (axis for axis in grid.axes if shares_data(axis) and axis not in (*known, *found)):
        if math.prod(summary.whole) // summary.size == there * grid.size(axis):
            found.append(axis)
    return found


def _ways(
    how: Placement | None,
    expected: Expected | None,
    mine: tuple[int, ...],
    *,
    split: bool,
    cut: bool,
    differs: bool,
    sums: bool,
) -> tuple[list[Placement], bool] | None:
    """Return how a sketch may be spread along an axis, and whether it adds up as shards do; None where nothing tells.

    ``how`` is what is known of that, ``split`` whether ranks along it have parts of a batch, ``cut`` whether some lack.
    """
    if how == REPLICATE and differs and expected is not None and is_part_of(mine, expected.of):
        return None  # layers that somebody splits by hand say nothing, which reads as if they were not split
    adds = split or (how is not None and how.kind in ("shard", "range"))
    if adds or (how is not None and how.kind == "partial"):
        return [] if cut else [Placement("partial", mean=how is not None and how.mean)], adds
    if how is not None or not differs:
        return [how or REPLICATE], False
    if expected is None or expected.of != mine:
        return None
    return [REPLICATE, *([Placement("partial")] if sums and not cut else [])], False


def _whole(summary: Summary, alike: Sequence[str], grid: Grid) -> tuple[int, ...]:
    """Return the shape of the whole value, of which replicas along some axes were taken for parts of a batch."""
    first, *others = summary.whole or summary.shape or (1,)
    for axis in alike:
        first //= grid.size(axis)
    return (first, *others) if summary.shape else ()


def _replicated(summaries: Mapping[int, Summary], grid: Grid, axis: str) -> bool:
    """Return whether ranks with data of their own hold the same, as far as norms and samples tell.

    What they sketched as parts of a batch is another thing at each place then.
    """

    def sketches(rank: int) -> bytes:
        found = summaries[rank].sketch
        return b"" if found is None else found.tobytes()

    apart = all(len(set(map(sketches, group))) > 1 for group in grid.groups(summaries, axis))
    return apart and not _unlike(summaries, grid, axis)


def _unlike(summaries: Mapping[int, Summary], grid: Grid, axis: str) -> tuple[int, ...]:
    """Return the ranks whose norms or samples are not those of the first of their group."""

    def figures(rank: int) -> tuple[Any, ...]:
        one = summaries[rank]
        return one.norm, None if one.sample is None else one.sample.tobytes()

    groups = grid.groups(summaries, axis)
    return tuple(rank for group in groups for rank in group[1:] if figures(rank) != figures(group[0]))


def together(parts: Sequence[Summary | None], kind: str) -> Summary | None:
    """Return what is known of what the ranks of a group hold together: of shards the squares add up.

    None where a rank does not tell, where replicas part, and of summands. Of replicas one is enough: it may be the one
    that steps for all.
    """
    parts = [one for one in parts if one is None or one.shape != (0,)] or parts
    known = [one for one in parts if one is not None and one.norm is not None]
    if len(known) < (1 if kind == "replicate" else len(parts)):
        return None
    norms, first = [one.norm or 0.0 for one in known], known[0]
    if len(known) == 1 or kind == "replicate":
        alike = max(norms) - min(norms) <= ACCUMULATED(epsilon_of(first.dtype)) * max(norms)
        return first if alike else None
    if kind not in ("shard", "range"):
        return None
    low, high = min(one.low or 0.0 for one in known), max(one.high or 0.0 for one in known)
    return attrs.evolve(first, norm=math.hypot(*norms), low=low, high=high, mean=None, sample=None)


def whole_summary(sketches: Sketches, grid: Grid, spreading: Spreading) -> Summary:
    """Return what is known of a whole value."""
    how, lead = spreading.placements, next(iter(sketches.summaries.values()))
    counts = {rank: np.array([one.nans or 0, one.infinities or 0]) for rank, one in sketches.summaries.items()}
    sums = {axis: Placement("partial") if one.kind != "replicate" else one for axis, one in how.items()}
    nans, infinities = merged(counts, grid, sums)
    assert lead.sketch is not None
    known: dict[int, Summary | None] = dict(sketches.summaries)
    whole = grid.folded(known, lambda axis, group: together(group, spreading.kind(axis)))
    shape = list(_whole(lead, spreading.alike, grid))
    for axis, one in how.items():  # compared rank by rank, one behind the other
        if one.kind == "shard":
            shape[0] *= grid.size(axis)
    alike = all(one.kind == "replicate" for one in how.values())
    return Summary(
        lead.dtype,
        tuple(shape),
        norm=None if whole is None else whole.norm,
        nans=int(nans),
        infinities=int(infinities),
        sample=lead.sample if alike else None,
        sketch=merged(read(sketches), grid, how).astype(lead.sketch.dtype),
    )
