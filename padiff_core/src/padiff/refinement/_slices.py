"""Read a step that one script makes of a batch as if it made it of the slices that the other script makes it of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, partners, same_sort
from padiff.forcing import Divided, Division, Share
from padiff.numerics import SAME, epsilon_of
from padiff.report import SIDES, Note
from padiff.trace import Call, Leaf, Summary, Trace

Traces = tuple[Trace, Trace]


def in_slices(alignment: Alignment, traces: Traces) -> tuple[Traces, Note] | None:
    """Return a step that one side made of one batch as both made it of the other's slices, and a note.

    None where both made it of slices, or neither; where these are no equal parts of the batch, one behind another; and
    where values were not kept. What has one shape is compared with that of each slice; its gradient, which is the sum
    of theirs, is not. A loss may be that of a slice: gradients tell what it is scaled by.
    """
    found = [trace.trained for trace in traces]
    counts = [len(calls) for calls in found]
    if min(counts) != 1 or counts[0] == counts[1]:
        return None
    side = counts.index(1)
    (root,), slices, count = found[side], found[1 - side], max(counts)
    axes = _axes(alignment, side, root, count)
    if axes is None or not _is_cut(root, slices, (traces[side], traces[1 - side]), axes):
        return None
    inside = [call for call in traces[side].calls if call is root or root in call.ancestors()]
    leaves = {
        (*call.key, what, index): leaf
        for call in inside
        for what in ("input", "output")
        for index, leaf in enumerate(call.leaves(what))
    }
    places = {place: axis for place, leaf in leaves.items() if (axis := axes.get(leaf.token)) is not None}
    whole = attrs.evolve(traces[side], gradients=dict(traces[side].gradients), summaries=dict(traces[side].summaries))
    for place, leaf in leaves.items():
        if place not in places and leaf.token in whole.gradients:  # the sum of the slices'
            whole.gradients[leaf.token] = whole.summarized(Summary(leaf.dtype, leaf.shape))
    shares = tuple(Share(0, number, count) for number in range(count))
    division = Division(shares, frozenset(call.key for call in inside), frozenset(places), places)
    read = [Divided(whole, division).trace, traces[1 - side]][:: 1 - 2 * side]
    apart = all(trace.gradients for trace in traces) and _apart(traces[0].loss, traces[1].loss)
    read = [attrs.evolve(trace, loss=None) for trace in read] if apart else read
    return (read[0], read[1]), Note("slices", {"side": SIDES[side], "count": count, "losses": apart})


def _apart(ours: float | None, theirs: float | None) -> bool:
    """Return whether two losses are none of the same values."""
    if ours is None or theirs is None:
        return False
    return not abs(ours - theirs) <= SAME(epsilon_of("float32")) * max(abs(ours), abs(theirs))


def _axes(alignment: Alignment, side: int, root: Call, count: int) -> dict[int, int | None] | None:
    """Return, of the tensors that have counterparts, along which axis they hold all slices; None of those that do not.

    Nothing where one tensor says both.
    """
    found: dict[int, int | None] = {}
    for pair in alignment.pairs:
        whole, part = (pair.reference, pair.candidate)[:: 1 - 2 * side]
        if whole is not root and root not in whole.ancestors():
            continue
        for what in ("input", "output"):
            ours, theirs = whole.leaves(what), part.leaves(what)
            for i, j in partners(ours, theirs, lambda a, b: same_sort(a, b) and _fits(a, b, count)):
                axis = _axis(ours[i], theirs[j])
                if found.setdefault(ours[i].token, axis) != axis:
                    return None
    return found


def _fits(whole: Leaf, part: Leaf, count: int) -> bool:
    """Return whether a tensor has the shape of another one, or holds some of that shape along one axis."""
    if len(whole.shape) != len(part.shape):
        return False
    apart = [(a, b) for a, b in zip(whole.shape, part.shape, strict=True) if a != b]
    return not apart or (len(apart) == 1 and apart[0][0] == count * apart[0][1])


def _axis(whole: Leaf, part: Leaf) -> int | None:
    return next((axis for axis, (a, b) in enumerate(zip(whole.shape, part.shape, strict=True)) if a != b), None)


def _is_cut(root: Call, slices: Sequence[Call], traces: Traces, axes: dict[int, int | None]) -> bool:
    """Return whether the slices were given the batch, one behind another, and what else it was given in each."""
    known = [list(_compared(root, part, number, len(slices), traces, axes)) for number, part in enumerate(slices)]
    return any(axes.get(leaf.token) is not None for leaf in root.inputs) and all(one and all(one) for one in known)


def _compared(
    root: Call, part: Call, number: int, count: int, traces: Traces, axes: dict[int, int | None]
) -> Iterator[bool]:
    """Yield of each input of one slice whether it is what the batch has there."""
    for i, j in partners(root.inputs, part.inputs, lambda a, b: same_sort(a, b) and _fits(a, b, count)):
        leaf = root.inputs[i]
        whole, own = traces[0].value(leaf), traces[1].value(part.inputs[j])
        axis = axes.get(leaf.token)
        if whole is not None and axis is not None:
            whole = Share(axis, number, count).read(whole)
        yield whole is not None and own is not None and np.array_equal(whole, own)
