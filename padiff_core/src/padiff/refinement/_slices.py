"""Read a step that one script makes of a batch as if it made it of the slices that the other script makes it of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, partners, same_sort
from padiff.forcing import Divided, Division, Place, Share, Summand
from padiff.grouping import grouped
from padiff.numerics import SAME, Array, difference, epsilon_of
from padiff.refinement._crossed_slices import crossed
from padiff.refinement._cut_calls import Cut, Traces, cuts, is_trained, ways
from padiff.refinement._cut_short import is_rest_unused, without_ends
from padiff.refinement._gathered_rows import gathered_rows
from padiff.report import SIDES, Note
from padiff.trace import Call, Leaf, Summary, Trace

Tie = tuple[Call, Call, str, int, int]
"""A call of the whole batch and one of a slice, ``input`` or ``output``, and which tensor of each."""
_SIDES = ("input", "output")


def in_slices(alignment: Alignment, traces: Traces) -> tuple[Traces, list[Note]] | None:
    """Return a step in which each model is called on the slices that either script calls it on, and notes.

    None where both call their models alike, or where what one calls a model on does not hold the rows, in whatever
    order, of what the other calls it on at once; and where values were not kept. What has one shape is the mean, or the
    sum, of what the slices make (a loss), or alike in all: its gradient, the sum of theirs, is not compared then. A
    loss that a script tells may be that of a slice.
    """
    known: list[tuple[Cut, Division]] = []
    for cut in cuts(alignment, traces):
        alike = any((one.side, one.shares) == (cut.side, cut.shares) for one, _ in known)
        found = _division(cut, alignment, traces, alike=alike or cut.again)
        known += [] if found is None else [(cut, found)]
    if not known:
        return _of_common_rows(alignment, traces) or _of_some_rows(alignment, traces)
    read, notes, several = list(traces), [], False
    for side in (0, 1):
        ours = [found for cut, found in known if cut.side == side]
        loose = frozenset[int]().union(*(cut.loose for cut, _ in known if cut.side == side))
        plain = _without_sums(traces[side], [one for one in ours if len(one.shares) > 1], loose)
        plain = without_ends(plain, [found for cut, found in known if cut.side == side and cut.leaves_out])
        read[side] = Divided(plain, *ours).trace if ours else traces[side]
    gradients = all(trace.gradients for trace in traces)
    for cut, _ in known:
        if cut.again:
            note = Note("given_again", {"side": SIDES[cut.side], "name": cut.whole.path})
            notes += [] if note in notes else [note]
            continue
        if len(cut.slices) == 1:
            share = cut.shares[0]
            data = {"side": SIDES[cut.side], "name": cut.whole.path, "rows": share.rows, "count": share.count}
            notes.append(Note("cut_short", data))
            continue
        trained = gradients and is_trained(cut.whole, traces[cut.side])
        losses = trained and _told_of_slices(traces[1 - cut.side]) and _apart(traces[0].loss, traces[1].loss)
        several |= losses
        model = cut.whole.path == traces[cut.side].root.path and len(traces[cut.side].trained) == 1
        data = {"side": SIDES[cut.side], "count": len(cut.slices), "losses": losses}
        notes.append(Note("slices", data if model else {**data, "name": cut.whole.path}))
    read = [attrs.evolve(trace, loss=None) for trace in read] if several else read
    return (read[0], read[1]), notes


def _of_common_rows(alignment: Alignment, traces: Traces) -> tuple[Traces, list[Note]] | None:
    """Return a step in which each micro-batch is read as the rows that it has in common with each of the other side."""
    found = list(crossed(alignment, traces))
    if not found:
        return None
    divided = [[division for *_, both in found for division in both[side]] for side in (0, 1)]
    read = [
        Divided(_without_sums(trace, some, frozenset()), *some).trace
        for trace, some in zip(traces, divided, strict=True)
    ]
    losses = all(map(_told_of_slices, traces)) and _apart(traces[0].loss, traces[1].loss)
    read = [attrs.evolve(trace, loss=None) for trace in read] if losses else read
    notes = [Note("slices_cross", {"name": path, "count": count, "losses": losses}) for path, count, _ in found]
    return (read[0], read[1]), notes


def _of_some_rows(alignment: Alignment, traces: Traces) -> tuple[Traces, list[Note]] | None:
    """Return a step in which a model's last layers are called for those rows alone that the other's are called for."""
    found = list(gathered_rows(alignment, traces))
    if not found:
        return None
    divided = [[division for at, division, _ in found if at == side] for side in (0, 1)]
    read = [Divided(trace, *some).trace if some else trace for trace, some in zip(traces, divided, strict=True)]
    return (read[0], read[1]), [note for *_, note in found]


def _told_of_slices(trace: Trace) -> bool:
    """Return whether a loss may be that of the last slice: not where all have one backward pass, as optimizers know."""
    return bool(trace.latest) or not trace.handed


def _division(cut: Cut, alignment: Alignment, traces: Traces, *, alike: bool) -> Division | None:
    """Return how the calls inside of what is cut are read; None where their tensors do not tell it.

    ``alike`` says whether another model's call is cut so.
    """
    side, root, slices, shares = cut.side, cut.whole, cut.slices, cut.shares
    both = traces[side], traces[1 - side]
    matched = [(pair.reference, pair.candidate) for pair in alignment.pairs]
    pairs = [(theirs, ours) for ours, theirs in matched] if side else matched
    of = {inner.key: share for one, share in zip(slices, shares, strict=True) for inner in one.subtree()}
    known = [(ours, theirs) for ours, theirs in pairs if theirs.key in of and root in (ours, *ours.ancestors())]
    outer = _outer(root, shares[0])
    first = slices[_shortest(shares)]
    ties = [one for both in _by_path(root, first, pairs) or known for one in _ties(both, of[both[1].key], outer)]
    parts = _shares(ties, shares, outer)
    given = {} if parts is None else _given(root, slices, both, parts)
    if parts is None or not given:
        return None
    if len(slices) == 1 and not is_rest_unused(root, slices[0], both, parts, alike=alike):
        return None
    count = len(slices)
    other = next((number for number in range(count) if not all(same[number] for same in given.values())), count - 1)
    weights = [len(one.rows or ()) / one.count for one in shares]
    named: dict[int, Sequence[Share | Summand]] = {**_means(ties, slices, both, weights, other), **parts}
    inside = list(root.subtree())
    growing = _growing(ties, slices, parts)
    places = {
        (*call.key, what, index): growing.get((*call.key, what, index), named[leaf.token])
        for call in inside
        for what in _SIDES
        for index, leaf in enumerate(call.leaves(what))
        if leaf.token in named
    }
    return Division(tuple(shares), frozenset(call.key for call in inside), frozenset(places), places)


def _by_path(whole: Call, part: Call, pairs: Sequence[tuple[Call, Call]]) -> list[tuple[Call, Call]]:
    """Return which call inside of one is which inside of another, as other calls of the same modules are matched."""
    of, ours, theirs = dict[str, str](), *(grouped(one.subtree(), lambda call: call.path) for one in (whole, part))
    for mine, yours in pairs:
        of.setdefault(mine.path, yours.path)
    return [both for a, b in of.items() for both in zip(ours.get(a, ()), theirs.get(b, ()), strict=False)]


def _without_sums(trace: Trace, divisions: Sequence[Division], loose: frozenset[int]) -> Trace:
    """Return a trace without the gradients of what is alike in all slices: they are the sums of the slices'.

    Nor has it those of what is ``loose``: they come to what was made of it, or what it was made of, as well.
    """
    found = attrs.evolve(trace, gradients=dict(trace.gradients), summaries=dict(trace.summaries))
    for division in divisions:
        for call in (call for call in trace.calls if call.key in division.calls):
            for what in _SIDES:
                for index, leaf in enumerate(call.leaves(what)):
                    sums = leaf.token in loose or (*call.key, what, index) not in division.places
                    if sums and leaf.token in found.gradients:
                        found.gradients[leaf.token] = found.summarized(Summary(leaf.dtype, leaf.shape))
    return found


def _apart(ours: float | None, theirs: float | None) -> bool:
    """Return whether two losses are none of the same values."""
    if ours is None or theirs is None:
        return False
    return not abs(ours - theirs) <= SAME(epsilon_of("float32")) * max(abs(ours), abs(theirs))


def _ties(calls: Sequence[Call], share: Share, outer: int) -> Iterator[Tie]:
    """Yield the tensors of two matched calls of which one may hold what the other has of all slices."""
    whole, part = calls
    for what in _SIDES:
        for i, j in partners(
            whole.leaves(what), part.leaves(what), lambda a, b: same_sort(a, b) and _fits(a, b, share, outer)
        ):
            yield whole, part, what, i, j


def _shares(ties: Sequence[Tie], shares: Sequence[Share], outer: int) -> dict[int, list[Share]] | None:
    """Return, by their tokens, what tensors of the whole batch hold of each slice; None where one says two things."""
    found: dict[int, Share | None] = {}
    for whole, part, what, i, j in ties:
        leaf, other = whole.leaves(what)[i], part.leaves(what)[j]
        way = _way(leaf.shape, other.shape, shares[_shortest(shares)], outer)
        if found.setdefault(leaf.token, way) != way:
            return None
    return {token: [_as(way, one) for one in shares] for token, way in found.items() if way is not None}


def _shortest(shares: Sequence[Share]) -> int:
    """Return the place of the part that pads to the shortest length: the first where each is as long as the batch."""
    return min(range(len(shares)), key=lambda place: shares[place].lengths)


def _as(way: Share, one: Share) -> Share:
    """Return what of a tensor is of another part than the one that tells which way it is cut."""
    if way.grown:
        return attrs.evolve(way, number=one.number, rows=tuple(range(one.lengths[0])))
    return attrs.evolve(_flat(one, way.count // one.count), axis=way.axis, dropped=way.dropped, padded=way.padded)


def _growing(ties: Sequence[Tie], slices: Sequence[Call], parts: dict[int, list[Share]]) -> dict[Place, list[Share]]:
    """Return what grows from slice to slice (a cache), and holds the rows of all before as well, by its place."""
    found: dict[Place, list[Share]] = {}
    for whole, part, what, i, j in ties:
        leaf, last = whole.leaves(what)[i], _last(part, slices)
        own = [one for one in parts.get(leaf.token, ()) if not one.grown]
        if own and last is not None and _is_at(last.leaves(what), j, leaf.shape):
            rows = [tuple(sorted(row for one in own[: k + 1] for row in one.rows or ())) for k in range(len(own))]
            found[*whole.key, what, i] = [attrs.evolve(one, rows=rows[one.number], grown=True) for one in own]
    return found


def _last(part: Call, slices: Sequence[Call]) -> Call | None:
    """Return the call in the last slice that is what a call in the first one is."""
    of = [[call for call in one.subtree() if call.path == part.path] for one in (slices[0], slices[-1])]
    return next((last for first, last in zip(*of, strict=False) if first is part), None)


def _is_at(leaves: Sequence[Leaf], index: int, shape: tuple[int, ...]) -> bool:
    return index < len(leaves) and sorted(leaves[index].shape) == sorted(shape)


def _way(whole: Sequence[int], part: Sequence[int], share: Share, outer: int) -> Share | None:
    """Return what of a tensor another one holds, as a share along whatever axis; that of the batch where it may be.

    Their axes may lie in another order, and that of the share in one with the ``outer`` places in front of it.
    """
    if any(share.lengths) and len(whole) == len(part):
        return _padded_way(whole, part, share)
    places = ways(whole, part) or [(axis, False) for axis in range(len(whole))]
    found = [attrs.evolve(share, axis=axis, dropped=dropped) for axis, dropped in places]
    flat = [_flat(one, outer) for one in found if outer > 1 and whole[one.axis] == outer * one.count]
    for same in (tuple, sorted):
        fitting = [one for one in (*flat, *found) if _fits_in(one, whole) and same(one.shape(whole)) == same(part)]
        if fitting:
            return share if share in fitting else fitting[0]
    return None


def _padded_way(whole: Sequence[int], part: Sequence[int], share: Share) -> Share | None:
    """Return what of a tensor a part has that pads its rows to its own length; of one without rows, its beginning."""
    own, longest = share.lengths
    shorter = tuple(axis for axis, both in enumerate(zip(part, whole, strict=True)) if both == share.lengths)
    joined = (axis for axis, size in enumerate(whole) if size == share.count * longest)
    ways = [(axis, shorter) for axis, size in enumerate(whole) if size % share.count == 0]
    ways += [(axis, (axis,)) for axis in joined]
    found = (attrs.evolve(share, axis=axis, padded=padded) for axis, padded in ways)
    begun = (Share(axis, share.number, longest, tuple(range(own)), grown=True) for axis in shorter)
    return next((one for one in (*found, *begun) if one.shape(whole) == tuple(part)), None)


def _flat(share: Share, outer: int) -> Share:
    """Return a share along its axis joined with so many places of those in front of it: a step of each text."""
    if outer == 1:
        return share
    rows = [place * share.count + row for place in range(outer) for row in share.rows or ()]
    return attrs.evolve(share, count=outer * share.count, rows=tuple(rows))


def _outer(root: Call, share: Share) -> int:
    """Return how many places the axes have that stand in front of a share's, in what is cut."""
    shapes = (leaf.shape for leaf in root.inputs)
    cut = (shape for shape in shapes if len(shape) > share.axis and shape[share.axis] == share.count)
    return math.prod(next(cut, ())[: share.axis])


def _fits_in(share: Share, whole: Sequence[int]) -> bool:
    return whole[share.axis] == share.count if share.dropped else whole[share.axis] % share.count == 0


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
    if (
        whole is None
        or len(known) < len(made)
        or whole.dtype.kind != "f"
        or {one.shape for one in known} != {whole.shape}
    ):
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


def _fits(whole: Leaf, part: Leaf, share: Share, outer: int) -> bool:
    """Return whether a tensor has the shape of another one, or holds some of that shape along one axis."""
    return whole.shape == part.shape or _way(whole.shape, part.shape, share, outer) is not None
