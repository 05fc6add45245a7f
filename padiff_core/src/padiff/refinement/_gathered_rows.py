"""Read what a model makes of all rows as that of those which the other model picks: of the words that a mask hides.

Or of those that the other script gives it at all, in one row (packed), where this one pads each sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from padiff.alignment import Alignment, partners, same_sort
from padiff.forcing import Division, Picked, Place, Share
from padiff.grouping import grouped
from padiff.numerics import Array
from padiff.refinement._cut_calls import Traces, is_trained
from padiff.refinement._cut_short import is_held
from padiff.report import SIDES, Note
from padiff.trace import Call, Leaf, Trace


def gathered_rows(alignment: Alignment, traces: Traces) -> Iterator[tuple[int, Division, Note]]:
    """Yield which calls of which side are read as of some rows alone, and a note.

    One model picks rows in front of its last layers, the other leaves it to the loss which of them count: no gradient
    comes to the others, and as many rows get one as the other model picks.
    """
    for pair in alignment.tops:
        calls = pair.reference, pair.candidate
        for side in (0, 1):
            whole, part = calls[side], calls[1 - side]
            rows = _rows(whole, part, traces[side]) or _packed(whole, part, (traces[side], traces[1 - side]))
            if rows is None:
                continue
            both = ((one.reference, one.candidate) for one in alignment.pairs)
            pairs = [(theirs, ours) if side else (ours, theirs) for ours, theirs in both]
            found = {what: dict(_picked(whole, part, pairs, what, rows)) for what in ("input", "output")}
            sent = [
                gradient for leaf in found["output"].values() if (gradient := traces[side].gradient(leaf)) is not None
            ]
            if not all(is_held(gradient, rows) for gradient in sent):
                continue
            made = {leaf.token for leaf in found["output"].values()}
            places = {place: [rows] for place in found["output"]}
            places |= {at: [rows if leaf.token in made else rows.shared] for at, leaf in found["input"].items()}
            inside = frozenset(call.key for call in whole.subtree())
            note = Note("rows_gathered", {"side": SIDES[side], "name": whole.path})
            yield side, Division((Share(0, 0, 1),), inside, frozenset(places), places), note


def _rows(whole: Call, part: Call, trace: Trace) -> Picked | None:
    """Return which rows of what a call gives get a gradient, where another one gives as many."""
    for ours, theirs in zip(whole.outputs, part.outputs, strict=False):
        axes, gradient = len(ours.shape) - len(theirs.shape) + 1, trace.gradient(ours)
        if axes < 1 or not theirs.shape or gradient is None or not gradient.size:
            continue
        count = math.prod(ours.shape[:axes])
        rows = np.flatnonzero(gradient.reshape(count, -1).any(1))
        if len(rows) == theirs.shape[0] < count and ours.shape[axes:] == theirs.shape[1:]:
            return Picked(axes, count, tuple(map(int, rows)))
    return None


def _packed(whole: Call, part: Call, traces: Traces) -> Picked | None:
    """Return which rows of padded sequences another call is given in one, one sequence behind the other.

    Of calls that get gradients: these tell that the rest has no effect.
    """
    for ours, theirs in zip(whole.inputs, part.inputs, strict=False) if is_trained(whole, traces[0]) else ():
        lead, shape = len(theirs.shape) - len(ours.shape) + 1, theirs.shape
        if lead not in (0, 1) or len(ours.shape) < 2 or shape[:lead] != (1,) * lead:
            continue
        batch, times, *rest = ours.shape
        count = batch * times
        if batch == 1 or shape[lead + 1 :] != tuple(rest) or shape[lead] >= count:
            continue
        value, other = traces[0].value(ours), traces[1].value(theirs)
        lengths = [] if value is None or other is None else _lengths(value, other.reshape(shape[lead:]))
        rows = tuple(number * times + time for number, one in enumerate(lengths) for time in range(one))
        if rows:
            return Picked(2, count, rows, lead=lead)
    return None


def _lengths(padded: Array, packed: Array) -> list[int]:
    """Return how long sequences are whose beginnings make up a value; nothing where they do not."""
    known: dict[int, list[int]] = {0: []}
    for sequence in padded:
        found: dict[int, list[int]] = {}
        for start, lengths in known.items():
            for length, (ours, theirs) in enumerate(zip(sequence, packed[start:], strict=False), 1):
                if not np.array_equal(ours, theirs):
                    break
                found[start + length] = [*lengths, length]
        known = found
    return known.get(len(packed), [])


def _picked(
    whole: Call, part: Call, pairs: Sequence[tuple[Call, Call]], what: str, rows: Picked
) -> Iterator[tuple[Place, Leaf]]:
    """Yield the tensors of a call, and of those inside, of which the other side's have the rows."""
    for ours, theirs in _inside(whole, part, pairs):
        for i, _ in partners(ours.leaves(what), theirs.leaves(what), lambda a, b: _is_picked(a, b, rows)):
            yield (*ours.key, what, i), ours.leaves(what)[i]


def _inside(whole: Call, part: Call, pairs: Sequence[tuple[Call, Call]]) -> Iterator[tuple[Call, Call]]:
    """Yield both calls, and which call inside of one is which inside of the other."""
    of = dict(pairs)
    ours, theirs = (grouped(one.subtree(), lambda call: call.path) for one in (whole, part))
    for calls in ours.values():
        other = next((of[call].path for call in calls if call in of), None)
        if other is not None:
            yield from zip(calls, theirs.get(other, ()), strict=False)


def _is_picked(ours: Leaf, theirs: Leaf, rows: Picked) -> bool:
    return same_sort(ours, theirs) and ours.shape != theirs.shape and rows.fits(ours.shape, theirs.shape)
