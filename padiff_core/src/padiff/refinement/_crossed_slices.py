"""Read micro-batches that both scripts make of one batch, of other rows each: as the rows that two have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from padiff.alignment import Alignment
from padiff.forcing import Division, Place, Share
from padiff.grouping import grouped
from padiff.numerics import SAME, Array, difference, epsilon_of
from padiff.refinement._cut_calls import Traces, is_trained
from padiff.trace import Call, Leaf

Row = tuple[int, int]
"""Which call, and which row of what it is given."""


@attrs.frozen
class _Crossing:
    """How the rows of a batch lie in the calls of both sides, along one axis of an input."""

    axis: int
    counts: tuple[Sequence[int], Sequence[int]]
    """How many rows each call is given."""
    pieces: dict[tuple[int, int], tuple[list[int], list[int]]]
    """A call of the reference and one of the candidate -> which rows of each are those that both have."""

    def shares(self, side: int, call: int) -> dict[int, Share]:
        """Return what of a call's rows each call of the other side has, by the other's number."""
        own = {both[1 - side]: rows[side] for both, rows in self.pieces.items() if both[side] == call}
        count = self.counts[side][call]
        return {n: Share(self.axis, k, count, tuple(rows)) for k, (n, rows) in enumerate(sorted(own.items()))}


def crossed(alignment: Alignment, traces: Traces) -> Iterator[tuple[str, int, tuple[list[Division], list[Division]]]]:
    """Yield the models, by the candidate's paths, that both scripts call as often on other rows of one batch.

    With them, how often, and how the calls of each side are read.
    """
    for paths in dict.fromkeys((pair.reference.path, pair.candidate.path) for pair in alignment.tops):
        calls = [
            [call for call in trace.tops if call.path == path and is_trained(call, trace)]
            for path, trace in zip(paths, traces, strict=True)
        ]
        crossing = _crossing(calls, traces) if len(calls[0]) == len(calls[1]) > 1 else None
        divisions = None if crossing is None else _divisions(crossing, calls, alignment, traces)
        if divisions is not None and all(
            (*call.key, "output", index) in one.places
            for some, own in zip(calls, divisions, strict=True)
            for call, one in zip(some, own, strict=True)
            for index in range(len(call.outputs))
        ):  # a loss that the model itself makes is another one of other rows
            yield paths[1], len(calls[0]), divisions


def _crossing(calls: Sequence[Sequence[Call]], traces: Traces) -> _Crossing | None:
    """Return how the rows cross; None where they do not, or are none of one batch."""
    found: list[tuple[int, _Crossing]] = []
    inputs = min(len(call.inputs) for some in calls for call in some)
    for index in range(inputs):
        values = [[trace.value(call.inputs[index]) for call in some] for some, trace in zip(calls, traces, strict=True)]
        arrays = [[one for one in some if one is not None] for some in values]
        if any(len(some) < len(own) for some, own in zip(arrays, values, strict=True)):
            continue
        for axis in range(min(one.ndim for some in arrays for one in some)):
            rows = [_rows_of(some, axis) for some in arrays]
            pieces = _pieces(*rows) if rows[0].keys() == rows[1].keys() else None
            counts = [[one.shape[axis] for one in some] for some in arrays]
            if pieces and any(len(both[0]) < counts[0][n] for (n, _), both in pieces.items()):
                found.append((len(rows[0]), _Crossing(axis, (counts[0], counts[1]), pieces)))
    return max(found, key=lambda one: one[0])[1] if found else None


def _rows_of(arrays: Sequence[Array], axis: int) -> dict[bytes, list[Row]]:
    """Return where each row of some arrays lies."""
    found: dict[bytes, list[Row]] = {}
    for number, array in enumerate(arrays):
        for row in range(array.shape[axis]):
            found.setdefault(array.take(row, axis).tobytes(), []).append((number, row))
    return found


def _pieces(
    ours: dict[bytes, list[Row]], theirs: dict[bytes, list[Row]]
) -> dict[tuple[int, int], tuple[list[int], list[int]]] | None:
    """Return which rows two calls have in common; None where one side has a row more often than the other."""
    found: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for key, places in ours.items():
        if len(places) != len(theirs[key]):
            return None
        for (n, row), (m, other) in zip(places, theirs[key], strict=True):
            mine, yours = found.setdefault((n, m), ([], []))
            mine.append(row)
            yours.append(other)
    return found


def _divisions(
    crossing: _Crossing, calls: Sequence[Sequence[Call]], alignment: Alignment, traces: Traces
) -> tuple[list[Division], list[Division]]:
    """Return how the calls of each side are read: what of each tensor inside is of which rows."""
    named = {pair.reference.path: pair.candidate.path for pair in alignment.pairs}
    places: tuple[dict[Place, list[Share]], dict[Place, list[Share]]] = {}, {}
    for n, m in crossing.pieces:
        inside = [grouped(call.subtree(), lambda one: one.path) for call in (calls[0][n], calls[1][m])]
        shares = crossing.shares(0, n)[m], crossing.shares(1, m)[n]
        for ours, theirs in named.items():
            for both in zip(inside[0].get(ours, ()), inside[1].get(theirs, ()), strict=False):
                for what in ("input", "output"):
                    for index, leaves in enumerate(zip(*(one.leaves(what) for one in both), strict=False)):
                        axes = _axes((leaves[0], leaves[1]), shares, traces)
                        for side, (call, axis) in enumerate(zip(both, axes or (), strict=False)):
                            own = crossing.shares(side, (n, m)[side]).values()
                            parts = [attrs.evolve(one, axis=axis) for one in own]
                            places[side].setdefault((*call.key, what, index), parts)
    found: tuple[list[Division], list[Division]] = [], []
    for side in (0, 1):
        for number, call in enumerate(calls[side]):
            keys = frozenset(inner.key for inner in call.subtree())
            held = {place: parts for place, parts in places[side].items() if place[:2] in keys}
            shares_of = tuple(crossing.shares(side, number).values())
            found[side].append(Division(shares_of, keys, frozenset(held), held))
    return found


def _axes(leaves: tuple[Leaf, Leaf], shares: tuple[Share, Share], traces: Traces) -> tuple[int, int] | None:
    """Return along which axes two tensors hold rows: where what both have of them is the same, else the first ones.

    None where they hold none, or the same whatever rows there are: positions.
    """
    counts = shares[0].count, shares[1].count
    ways = [
        (a, b)
        for a, rows in enumerate(leaves[0].shape)
        for b, others in enumerate(leaves[1].shape)
        if rows and rows % counts[0] == 0 == others % counts[1] and rows * counts[1] == others * counts[0]
    ]
    ours, theirs = (trace.value(leaf) for trace, leaf in zip(traces, leaves, strict=True))
    whole = all(share.rows == tuple(range(share.count)) for share in shares)
    if ours is None or theirs is None or not ways or whole:
        return ways[0] if ways else None
    if _is_same(ours, theirs):
        return None
    read = (
        [attrs.evolve(share, axis=axis).read(one) for share, axis, one in zip(shares, way, (ours, theirs), strict=True)]
        for way in ways
    )
    return next((way for way, both in zip(ways, read, strict=True) if _is_same(*both)), ways[0])


def _is_same(ours: Array, theirs: Array) -> bool:
    return ours.shape == theirs.shape and difference(ours, theirs).rel_l2 <= SAME(epsilon_of(ours.dtype.name))
