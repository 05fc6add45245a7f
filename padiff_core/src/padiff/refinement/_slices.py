"""Read a step that one script makes of a batch as if it made it of the slices that the other script makes it of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, partners, same_sort
from padiff.forcing import Divided, Division, Share, Summand
from padiff.numerics import SAME, Array, difference, epsilon_of
from padiff.report import SIDES, Note
from padiff.trace import Call, Leaf, Summary, Trace

Traces = tuple[Trace, Trace]
Tie = tuple[Call, Call, str, int, int]
"""A call of the whole batch and one of a slice, ``input`` or ``output``, and which tensor of each."""
_SIDES = ("input", "output")


def in_slices(alignment: Alignment, traces: Traces) -> tuple[Traces, Note] | None:
    """Return a step that one side made of one batch as both made it of the other's slices, and a note.

    None where both made it of slices, or neither; where these do not hold the rows of the batch, in whatever order; and
    where values were not kept. What has one shape is the mean, or the sum, of what the slices make (a loss), or alike
    in all: its gradient, the sum of theirs, is not compared then. A loss that a script tells may be that of a slice.
    """
    found = [trace.trained for trace in traces]
    counts = [len(calls) for calls in found]
    if min(counts) != 1 or counts[0] == counts[1]:
        return None
    side = counts.index(1)
    (root,), slices, count, both = found[side], found[1 - side], max(counts), (traces[side], traces[1 - side])
    shares = _cut(root, slices, both)
    if not shares:
        return None
    pairs = [(pair.reference, pair.candidate)[:: 1 - 2 * side] for pair in alignment.pairs]
    of = {inner.key: share for one, share in zip(slices, shares, strict=True) for inner in one.subtree()}
    ties = [one for whole, part in pairs if part.key in of for one in _ties((whole, part), of[part.key])]
    ties = [one for one in ties if one[0] is root or root in one[0].ancestors()]
    cut = _shares(ties, shares)
    given = {} if cut is None else _given(root, slices, both, cut)
    if cut is None or not any(map(all, given.values())):
        return None
    other = next((number for number in range(count) if not all(same[number] for same in given.values())), count - 1)
    weights = [len(one.rows or ()) / one.count for one in shares]
    parts: dict[int, Sequence[Share | Summand]] = {**_means(ties, slices, both, weights, other), **cut}
    inside = [call for call in both[0].calls if call is root or root in call.ancestors()]
    leaves = {
        (*call.key, what, index): leaf
        for call in inside
        for what in _SIDES
        for index, leaf in enumerate(call.leaves(what))
    }
    whole = attrs.evolve(both[0], gradients=dict(both[0].gradients), summaries=dict(both[0].summaries))
    for leaf in leaves.values():
        if leaf.token not in parts and leaf.token in whole.gradients:  # the sum of the slices'
            whole.gradients[leaf.token] = whole.summarized(Summary(leaf.dtype, leaf.shape))
    named = {place: parts[leaf.token] for place, leaf in leaves.items() if leaf.token in parts}
    division = Division(tuple(shares), frozenset(call.key for call in inside), frozenset(named), named)
    read = [Divided(whole, division).trace, both[1]][:: 1 - 2 * side]
    apart = all(trace.gradients for trace in traces) and _apart(traces[0].loss, traces[1].loss)
    read = [attrs.evolve(trace, loss=None) for trace in read] if apart else read
    return (read[0], read[1]), Note("slices", {"side": SIDES[side], "count": count, "losses": apart})


def _apart(ours: float | None, theirs: float | None) -> bool:
    """Return whether two losses are none of the same values."""
    if ours is None or theirs is None:
        return False
    return not abs(ours - theirs) <= SAME(epsilon_of("float32")) * max(abs(ours), abs(theirs))


def _cut(root: Call, slices: Sequence[Call], traces: Traces) -> list[Share]:
    """Return which rows of what the batch is given each slice is given; nothing where they do not make it up.

    The input tells whose rows are most different: those of a mask may be alike.
    """
    best: tuple[int, list[Share]] = 0, []
    for i, leaf in enumerate(root.inputs):
        whole, parts = traces[0].value(leaf), [traces[1].value(one.inputs[i]) for one in slices if i < len(one.inputs)]
        known = [one for one in parts if one is not None]
        axes = set() if whole is None else {axis for one in known for axis in _axes(whole.shape, one.shape)}
        if whole is None or len(axes) != 1 or len(known) < len(slices):
            continue
        (axis,) = axes
        free: dict[bytes, list[int]] = {}
        for row, value in enumerate(np.moveaxis(whole, axis, 0)):
            free.setdefault(value.tobytes(), []).append(row)
        kinds, rows = len(free), []
        for one in known:
            values = np.moveaxis(one.astype(whole.dtype), axis, 0)
            rows.append([free[key].pop(0) if free.get(key := value.tobytes()) else -1 for value in values])
        if kinds > best[0] and sorted(row for part in rows for row in part) == list(range(whole.shape[axis])):
            best = kinds, [Share(axis, k, whole.shape[axis], tuple(part)) for k, part in enumerate(rows)]
    return best[1]


def _axes(whole: Sequence[int], part: Sequence[int]) -> list[int]:
    return [axis for axis, (a, b) in enumerate(zip(whole, part, strict=False)) if a != b or len(whole) != len(part)]


def _ties(calls: Sequence[Call], share: Share) -> Iterator[Tie]:
    """Yield the tensors of two matched calls of which one may hold what the other has of all slices."""
    whole, part = calls
    for what in _SIDES:
        for i, j in partners(
            whole.leaves(what), part.leaves(what), lambda a, b: same_sort(a, b) and _fits(a, b, share)
        ):
            yield whole, part, what, i, j


def _shares(ties: Sequence[Tie], shares: Sequence[Share]) -> dict[int, list[Share]] | None:
    """Return, by their tokens, what tensors of the whole batch hold of each slice; None where one says two things."""
    axes: dict[int, int | None] = {}
    for whole, part, what, i, j in ties:
        leaf, other = whole.leaves(what)[i], part.leaves(what)[j]
        axis = next(iter(_axes(leaf.shape, other.shape)), None)
        if axes.setdefault(leaf.token, axis) != axis:
            return None
    cut = {token: axis for token, axis in axes.items() if axis is not None}
    return {token: [attrs.evolve(one, axis=axis) for one in shares] for token, axis in cut.items()}


def _given(root: Call, slices: Sequence[Call], traces: Traces, cut: dict[int, list[Share]]) -> dict[int, list[bool]]:
    """Return of each tensor that the batch is given in slices whether these are what it has of their rows."""
    found: dict[int, list[bool]] = {}
    for number, part in enumerate(slices):
        for i, j in partners(root.inputs, part.inputs, same_sort):
            if root.inputs[i].token in cut:
                whole, own = traces[0].value(root.inputs[i]), traces[1].value(part.inputs[j])
                share = cut[root.inputs[i].token][number]
                same = whole is not None and own is not None and np.array_equal(share.read(whole), own)
                found.setdefault(i, []).append(same)
    return {i: same for i, same in found.items() if len(same) == len(slices)}


def _means(
    ties: Sequence[Tie], slices: Sequence[Call], traces: Traces, weights: Sequence[float], other: int
) -> dict[int, list[Summand]]:
    """Return, by their tokens, the tensors of the whole batch that are the mean, or the sum, of what the slices make.

    In a mean each slice has the weight of its rows. Which slice makes another one of it nobody knows: one does that was
    given something ``other``.
    """
    trees = [list(one.subtree()) for one in slices]
    places = {call.key: number for tree in trees for number, call in enumerate(tree)}
    found: dict[int, list[Summand]] = {}
    for whole, part, what, i, j in ties if len({tuple(call.path for call in tree) for tree in trees}) == 1 else ():
        if whole.leaves(what)[i].shape == part.leaves(what)[j].shape and part.key in places:
            made = [traces[1].value(tree[places[part.key]].leaves(what)[j]) for tree in trees]
            summands = _summands(traces[0].value(whole.leaves(what)[i]), made, weights, other)
            found |= {whole.leaves(what)[i].token: summands} if summands else {}
    return found


def _summands(whole: Array | None, made: Sequence[Array | None], weights: Sequence[float], other: int) -> list[Summand]:
    """Return what each slice's value has in the whole's, where that is rather their mean, or sum, than any of them."""
    known = [one.astype(np.float64) for one in made if one is not None]
    if whole is None or len(known) < len(made) or whole.dtype.kind != "f":
        return []
    exact = whole.astype(np.float64)
    found = []
    for times in (weights, [1.0] * len(known)):
        total = np.sum([one * value for one, value in zip(times, known, strict=True)], 0)
        found.append((difference(exact, total).rel_l2, times, total))
    apart, times, total = min(found, key=lambda one: one[0])
    alone = min(difference(exact, one).rel_l2 for one in known)
    same = SAME(epsilon_of(whole.dtype.name))
    if all(np.array_equal(one, known[0]) for one in known) or not (apart <= same or same < alone > apart):
        return []
    offsets = [one - exact + (exact - total) / times[number] * (number == other) for number, one in enumerate(known)]
    return [Summand(one, own) for one, own in zip(offsets, times, strict=True)]


def _fits(whole: Leaf, part: Leaf, share: Share) -> bool:
    """Return whether a tensor has the shape of another one, or holds some of that shape along one axis."""
    if len(whole.shape) != len(part.shape):
        return False
    apart = _axes(whole.shape, part.shape)
    return not apart or (len(apart) == 1 and attrs.evolve(share, axis=apart[0]).shape(whole.shape) == part.shape)
