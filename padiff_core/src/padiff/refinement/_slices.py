"""Read a step that one script makes of a batch as if it made it of the slices that the other script makes it of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, partners, same_sort
from padiff.forcing import Divided, Division, Share, Summand
from padiff.grouping import grouped
from padiff.numerics import SAME, Array, difference, epsilon_of
from padiff.report import SIDES, Note
from padiff.trace import Call, Leaf, Summary, Trace

Traces = tuple[Trace, Trace]
Tie = tuple[Call, Call, str, int, int]
"""A call of the whole batch and one of a slice, ``input`` or ``output``, and which tensor of each."""
_SIDES = ("input", "output")
_MOST = 4096
"""Rows of which the nearest ones are looked for."""
_UNRELATED = 2**0.5
"""How far apart values are that have nothing to do with each other."""
_COLUMNS = 64
"""Elements by which it is told how near two rows are."""


@attrs.frozen
class _Cut:
    """A call that one side makes once, and what of it each of the other side's calls of that model has."""

    side: int
    whole: Call
    slices: Sequence[Call]
    shares: Sequence[Share]
    loose: frozenset[int]
    """Tokens that hold a gradient of other uses than the slices' do: one script hands on what a call gave, and the
    other what it made of that."""


def in_slices(alignment: Alignment, traces: Traces) -> tuple[Traces, list[Note]] | None:
    """Return a step in which each model is called on the slices that either script calls it on, and notes.

    None where both call their models alike, or where what one calls a model on does not hold the rows, in whatever
    order, of what the other calls it on at once; and where values were not kept. What has one shape is the mean, or the
    sum, of what the slices make (a loss), or alike in all: its gradient, the sum of theirs, is not compared then. A
    loss that a script tells may be that of a slice.
    """
    cuts = [
        (cut, found) for cut in _cuts(alignment, traces) if (found := _division(cut, alignment, traces)) is not None
    ]
    if not cuts:
        return None
    read, notes, several = list(traces), [], False
    for side in (0, 1):
        ours = [found for cut, found in cuts if cut.side == side]
        loose = frozenset[int]().union(*(cut.loose for cut, _ in cuts if cut.side == side))
        read[side] = Divided(_without_sums(traces[side], ours, loose), *ours).trace if ours else traces[side]
    gradients = all(trace.gradients for trace in traces)
    for cut, _ in cuts:
        trained = gradients and _is_trained(cut.whole, traces[cut.side])
        losses = trained and _told_of_slices(traces[1 - cut.side]) and _apart(traces[0].loss, traces[1].loss)
        several |= losses
        model = cut.whole.path == traces[cut.side].root.path and len(traces[cut.side].trained) == 1
        data = {"side": SIDES[cut.side], "count": len(cut.slices), "losses": losses}
        notes.append(Note("slices", data if model else {**data, "name": cut.whole.path}))
    read = [attrs.evolve(trace, loss=None) for trace in read] if several else read
    return (read[0], read[1]), notes


def _cuts(alignment: Alignment, traces: Traces) -> Iterator[_Cut]:
    """Yield the calls that one script makes where the other makes several, of each model that both call.

    Calls to which gradients come are none of those to which none does.
    """
    given = [{leaf.token for call in trace.tops for leaf in call.outputs} for trace in traces]
    for paths in dict.fromkeys((pair.reference.path, pair.candidate.path) for pair in alignment.tops):
        calls = [[call for call in one.tops if call.path == path] for one, path in zip(traces, paths, strict=True)]
        for trained in (True, False):
            some = [[call for call in calls[n] if _is_trained(call, traces[n]) is trained] for n in (0, 1)]
            side = 0 if len(some[0]) < len(some[1]) else 1
            both = traces[side], traces[1 - side]
            for whole in some[side] if len(some[0]) != len(some[1]) else ():
                slices = _without_alike(whole, some[side], some[1 - side], both)
                shares = _cut(whole, slices, both) if len(slices) > 1 else []
                if shares:
                    yield _Cut(side, whole, slices, shares, _loose(whole, slices, (given[side], given[1 - side])))
                    break


def _without_alike(whole: Call, ours: Sequence[Call], theirs: Sequence[Call], traces: Traces) -> Sequence[Call]:
    """Return the calls that may be slices of one: none that is another of its side's; nothing where these are others.

    Of calls that are given the same, gradients tell which is which: of data, and of data that a penalty is for.
    """
    left = list(theirs)
    for call in (call for call in ours if call is not whole):
        alike = [one for one in left if _shapes(one) == _shapes(call)]
        if not alike:
            return ()
        left.remove(min(alike, key=lambda one: _far(call, one, traces)))
    return left


def _shapes(call: Call) -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in call.inputs]


def _far(call: Call, other: Call, traces: Traces) -> float:
    """Return how far two calls are apart in what they are given, and in the gradients that they get."""
    given = [(traces[0].value(a), traces[1].value(b)) for a, b in zip(call.inputs, other.inputs, strict=True)]
    sent = [(traces[0].gradient(a), traces[1].gradient(b)) for a, b in zip(call.outputs, other.outputs, strict=False)]
    return sum(_difference(*both) for both in (*given, *sent))


def _difference(ours: Array | None, theirs: Array | None) -> float:
    """Return how far two values are apart, relative L2; values of other sizes as far as such as are not related."""
    if ours is None or theirs is None or ours.size != theirs.size:
        return _UNRELATED * (ours is not theirs)
    return min(difference(ours.ravel(), theirs.ravel()).rel_l2, _UNRELATED)


def _is_trained(call: Call, trace: Trace) -> bool:
    return any(leaf.token in trace.gradients for leaf in call.outputs)


def _told_of_slices(trace: Trace) -> bool:
    """Return whether a loss may be that of the last slice: not where all have one backward pass, as optimizers know."""
    return bool(trace.latest) or not trace.handed


def _division(cut: _Cut, alignment: Alignment, traces: Traces) -> Division | None:
    """Return how the calls inside of what is cut are read; None where their tensors do not tell it."""
    side, root, slices, shares = cut.side, cut.whole, cut.slices, cut.shares
    both = traces[side], traces[1 - side]
    matched = [(pair.reference, pair.candidate) for pair in alignment.pairs]
    pairs = [(theirs, ours) for ours, theirs in matched] if side else matched
    of = {inner.key: share for one, share in zip(slices, shares, strict=True) for inner in one.subtree()}
    known = [(ours, theirs) for ours, theirs in pairs if theirs.key in of and root in (ours, *ours.ancestors())]
    ties = [one for both in known or _by_path(root, slices[0], pairs) for one in _ties(both, of[both[1].key])]
    parts = _shares(ties, shares)
    given = {} if parts is None else _given(root, slices, both, parts)
    if parts is None or not given:
        return None
    count = len(slices)
    other = next((number for number in range(count) if not all(same[number] for same in given.values())), count - 1)
    weights = [len(one.rows or ()) / one.count for one in shares]
    named: dict[int, Sequence[Share | Summand]] = {**_means(ties, slices, both, weights, other), **parts}
    inside = list(root.subtree())
    places = {
        (*call.key, what, index): named[leaf.token]
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


def _loose(whole: Call, slices: Sequence[Call], given: tuple[set[int], set[int]]) -> frozenset[int]:
    """Return what a batch is given that is no call's output while a slice's is, or the other way round."""
    pairs = [
        (whole.inputs[i], one.inputs[j]) for one in slices for i, j in partners(whole.inputs, one.inputs, same_sort)
    ]
    return frozenset(ours.token for ours, theirs in pairs if (ours.token in given[0]) != (theirs.token in given[1]))


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


def _cut(root: Call, slices: Sequence[Call], traces: Traces) -> list[Share]:
    """Return which rows of what the batch is given each slice is given; nothing where they do not make it up.

    The input tells whose rows are most different: those of a mask may be alike. What a model made of data is the same
    up to rounding, or a fault.
    """
    best: tuple[int, list[Share]] = 0, []
    for i, leaf in enumerate(root.inputs):
        whole, parts = traces[0].value(leaf), [traces[1].value(one.inputs[i]) for one in slices if i < len(one.inputs)]
        known = [one for one in parts if one is not None]
        if whole is None or len(known) < len(slices):
            continue
        for axis, dropped in set.intersection(*({*_ways(whole.shape, one.shape)} for one in known)):
            rows = np.moveaxis(whole, axis, 0)
            cut = [one[None] if dropped else np.moveaxis(one, axis, 0) for one in known]
            kinds, found = _same_rows(rows, [one.astype(whole.dtype) for one in cut])
            if not kinds:
                kinds, found = 1, _near_rows(rows, cut)
            if kinds > best[0] and sorted(row for part in found for row in part) == list(range(len(rows))):
                shares = enumerate(found)
                best = kinds, [Share(axis, k, len(rows), tuple(part), dropped=dropped) for k, part in shares]
    return best[1]


def _same_rows(whole: Array, parts: Sequence[Array]) -> tuple[int, list[list[int]]]:
    """Return which rows of a value parts of it hold, and how many different ones it has; 0 where they hold others."""
    free: dict[bytes, list[int]] = {}
    for row, value in enumerate(whole):
        free.setdefault(value.tobytes(), []).append(row)
    kinds, rows = len(free), []
    for one in parts:
        rows.append([free[key].pop(0) if free.get(key := value.tobytes()) else -1 for value in one])
    return (0, []) if any(row < 0 for part in rows for row in part) else (kinds, rows)


def _near_rows(whole: Array, parts: Sequence[Array]) -> list[list[int]]:
    """Return which rows of a value are nearest to those of its parts; nothing where these are not related to them."""
    if whole.dtype.kind != "f" or sum(map(len, parts)) != len(whole) or len(whole) > _MOST:
        return []
    ours, theirs = (one.reshape(len(whole), -1).astype(np.float64) for one in (whole, np.concatenate(parts)))
    columns = np.linspace(0, ours.shape[1] - 1, min(ours.shape[1], _COLUMNS)).astype(int)
    apart = np.array([np.linalg.norm(ours[:, columns] - one[columns], axis=1) for one in theirs])
    nearest = iter(apart.argmin(1).tolist())
    related = np.linalg.norm(apart.min(1)) < np.linalg.norm(ours[:, columns]) / 2
    return [[next(nearest) for _ in part] for part in parts] if related else []


def _ways(whole: Sequence[int], part: Sequence[int]) -> list[tuple[int, bool]]:
    """Return along which axes a value may hold parts of a shape, and whether these have no such axis themselves."""
    if len(whole) == len(part):
        apart = [(axis, False) for axis, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b]
        return apart if len(apart) == 1 else []
    return [(axis, True) for axis in range(len(whole)) if (*whole[:axis], *whole[axis + 1 :]) == tuple(part)]


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
    found: dict[int, Share | None] = {}
    for whole, part, what, i, j in ties:
        leaf, other = whole.leaves(what)[i], part.leaves(what)[j]
        way = _way(leaf, other, shares[0])
        if found.setdefault(leaf.token, way) != way:
            return None
    return {
        token: [attrs.evolve(one, axis=way.axis, dropped=way.dropped) for one in shares]
        for token, way in found.items()
        if way is not None
    }


def _way(whole: Leaf, part: Leaf, share: Share) -> Share | None:
    """Return what of a tensor another one holds, as a share along whatever axis; that of the batch where it may be."""
    ways = [attrs.evolve(share, axis=axis, dropped=dropped) for axis, dropped in _ways(whole.shape, part.shape)]
    fitting = [one for one in ways if not one.dropped or whole.shape[one.axis] == share.count]
    return share if share in fitting else next(iter(fitting), None)


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
    way = _way(whole, part, share)
    return whole.shape == part.shape or (way is not None and way.shape(whole.shape) == tuple(part.shape))
