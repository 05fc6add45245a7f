"""Find the calls that one script makes of a model where the other calls it on slices of what they are given."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.alignment import Alignment, partners, same_sort
from padiff.forcing import Share
from padiff.numerics import Array, difference
from padiff.trace import Call, Trace

Traces = tuple[Trace, Trace]
_MOST = 1024
"""Rows of which the nearest ones are looked for."""
_CALLS = 256
"""Calls of which each is looked at for each of the other side's."""
_UNRELATED = 2**0.5
"""How far apart values are that have nothing to do with each other."""
_COLUMNS = 64
"""Elements by which it is told how near two rows are."""


@attrs.frozen
class Cut:
    """A call that one side makes once, and what of it each of the other side's calls of that model has."""

    side: int
    whole: Call
    slices: Sequence[Call]
    shares: Sequence[Share]
    loose: frozenset[int]
    """Tokens that hold a gradient of other uses than the slices' do: one script hands on what a call gave, and the
    other what it made of that."""
    again: bool = False
    """Whether all else that it is given the other side's model was given in the calls before: it keeps a cache."""

    @property
    def leaves_out(self) -> bool:
        """Return whether the other side's model is never given the rest of what it is given."""
        return len(self.slices) == 1 and not self.again


def cuts(alignment: Alignment, traces: Traces) -> Iterator[Cut]:
    """Yield the calls that one script makes where the other makes several, of each model that both call.

    Calls to which gradients come are none of those to which none does; but a slice may get none by a fault.
    """
    for paths in dict.fromkeys((pair.reference.path, pair.candidate.path) for pair in alignment.tops):
        calls = [[call for call in one.tops if call.path == path] for one, path in zip(traces, paths, strict=True)]
        trained, rest = (_of(calls, traces, gets=gets) for gets in (True, False))
        found = list(_cut_of(trained, traces))
        for side in (0, 1) if not found else ():
            found += _cut_of((trained[0], calls[1]) if side == 0 else (calls[0], trained[1]), traces, side)
        yield from found
        yield from _cut_of(rest, traces)
        yield from _given_again(rest, traces)
        for both in (trained, rest) if all(trace.gradients for trace in traces) else ():
            yield from _cut_short(both, traces)


def _cut_short(calls: Sequence[Sequence[Call]], traces: Traces) -> Iterator[Cut]:
    """Yield the calls, as many on either side, of which one is given a piece of what the other is given.

    A script may leave out the last word of a text, whose prediction is compared with nothing, before the model or
    behind it.
    """
    for both in zip(*calls, strict=True) if len(calls[0]) == len(calls[1]) else ():
        for side in (0, 1):
            share = _piece(both[side], both[1 - side], (traces[side], traces[1 - side]))
            if share is not None:
                yield Cut(side, both[side], [both[1 - side]], [share], frozenset())


def _given_again(calls: Sequence[Sequence[Call]], traces: Traces) -> Iterator[Cut]:
    """Yield the calls, as many on either side, of which one is given what the one before was, and what the other is.

    A model that keeps no cache makes it all anew to say the next word.
    """
    for side in (0, 1) if len(calls[0]) == len(calls[1]) else ():
        for (before, whole), part in zip(itertools.pairwise(calls[side]), calls[1 - side][1:], strict=True):
            share = _end(before, whole, part, (traces[side], traces[1 - side]))
            if share is not None:
                yield Cut(side, whole, [part], [share], frozenset(), again=True)


def _end(before: Call, whole: Call, part: Call, traces: Traces) -> Share | None:
    """Return the end of what a call is given as what another one is, where all else was given before, row by row.

    Whatever rows go on: of a search for the likeliest words some do, in another order, or twice.
    """
    for earlier, ours, theirs in zip(before.inputs, whole.inputs, part.inputs, strict=False):
        for axis, dropped in ways(ours.shape, theirs.shape):
            value, known, other = traces[0].value(ours), traces[0].value(earlier), traces[1].value(theirs)
            count, last = ours.shape[axis], 1 if dropped else theirs.shape[axis]
            if value is None or known is None or other is None or last >= count:
                continue
            share = Share(axis, 0, count, tuple(range(count - last, count)), dropped=dropped)
            rest = np.take(value, range(count - last), axis)
            found, rows = (one[None] if axis == 0 else one for one in (rest, known))
            alike = found.shape[1:] == rows.shape[1:] and np.array_equal(share.read(value), other)
            if alike and {one.tobytes() for one in found} <= {one.tobytes() for one in rows}:
                return share
    return None


def _piece(whole: Call, part: Call, traces: Traces) -> Share | None:
    """Return which piece of what a call is given another one is given."""
    for ours, theirs in zip(whole.inputs, part.inputs, strict=False):
        value, other = traces[0].value(ours), traces[1].value(theirs)
        if value is None or other is None:
            continue
        for axis, dropped in ways(ours.shape, theirs.shape):
            count, some = ours.shape[axis], 1 if dropped else theirs.shape[axis]
            for first in range(count - some + 1) if some < count else ():
                share = Share(axis, 0, count, tuple(range(first, first + some)), dropped=dropped)
                if np.array_equal(share.read(value), other):
                    return share
    return None


def _of(calls: Sequence[Sequence[Call]], traces: Traces, *, gets: bool) -> list[list[Call]]:
    """Return those calls of both sides that get a gradient, or those that get none."""
    sides = zip(calls, traces, strict=True)
    return [[call for call in some if is_trained(call, trace) is gets] for some, trace in sides]


def _cut_of(calls: Sequence[Sequence[Call]], traces: Traces, side: int | None = None) -> Iterator[Cut]:
    """Yield which calls of the side that makes fewer the other one makes in slices; of one ``side`` alone, if told."""
    fewer = 0 if len(calls[0]) < len(calls[1]) else 1
    if side not in (None, fewer):
        return
    both = traces[fewer], traces[1 - fewer]
    given = [{leaf.token for call in trace.tops for leaf in call.outputs} for trace in both]
    wholes = _wholes(calls[fewer], calls[1 - fewer])
    several = wholes if len(wholes) > 1 else []  # batches that the other side cuts into more
    held = {whole: {one for one in calls[1 - fewer] if _is_given(whole, one, both)} for whole in several}
    for whole in wholes:
        own, others = held.get(whole, set()), _others(whole, calls[fewer], calls[1 - fewer], both)
        left = set(others) - set[Call]().union(*held.values())
        for some in (own, own | left):  # what a model made of data may be rounded otherwise
            slices = [one for one in calls[1 - fewer] if one in some]
            shares = _cut(whole, slices, both) if len(slices) > 1 else []
            if shares:
                yield Cut(fewer, whole, slices, shares, _loose(whole, slices, (given[0], given[1])))
                break


def _wholes(ours: Sequence[Call], theirs: Sequence[Call]) -> list[Call]:
    """Return the calls of which several of the other side's may be slices, where that one makes more."""
    parts = theirs if len(ours) < len(theirs) <= _CALLS else []
    return [call for call in ours if sum(_is_part(one, call) for one in parts) > 1]


def _is_part(part: Call, whole: Call) -> bool:
    """Return whether something that a call is given may be a part of what another one is."""
    both = [(a.shape, b.shape) for a, b in zip(whole.inputs, part.inputs, strict=False)]
    return any(ways(*one) or padded_axis(*one) for one in both)


def _is_given(whole: Call, part: Call, traces: Traces) -> bool:
    """Return whether a call holds all that another one is given, which are rows of what it is given itself."""
    told: list[bool] = []
    for ours, theirs in zip(whole.inputs, part.inputs, strict=False):
        value, other = traces[0].value(ours), traces[1].value(theirs)
        if value is not None and other is not None and (how := ways(value.shape, other.shape)):
            parts = [other.astype(value.dtype)]
            told.append(any(_same_rows(*_rows(value, parts, axis, dropped=gone))[0] for axis, gone in how))
    return bool(told) and all(told)


def _others(whole: Call, ours: Sequence[Call], theirs: Sequence[Call], traces: Traces) -> Sequence[Call]:
    """Return the calls that may be slices of one: none that is another of its side's, or a part of that alone.

    Of calls that are given the same, gradients tell which is which: of data, and of data that a penalty is for.
    """
    left = list(theirs)
    for call in (call for call in ours if call is not whole):
        alike = [one for one in left if _shapes(one) == _shapes(call)]
        if alike:
            left.remove(min(alike, key=lambda one: _far(call, one, traces)))
        else:
            left = [one for one in left if _is_part(one, whole) or not _is_part(one, call)]
    return left


def _shapes(call: Call) -> list[list[int]]:
    """Return the shapes of what a call is given, but for the order of axes."""
    return [sorted(leaf.shape) for leaf in call.inputs]


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


def is_trained(call: Call, trace: Trace) -> bool:
    """Return whether a gradient comes to what a call gives."""
    return any(leaf.token in trace.gradients for leaf in call.outputs)


def _loose(whole: Call, slices: Sequence[Call], given: tuple[set[int], set[int]]) -> frozenset[int]:
    """Return what a batch is given that is no call's output while a slice's is, or the other way round."""
    pairs = [
        (whole.inputs[i], one.inputs[j]) for one in slices for i, j in partners(whole.inputs, one.inputs, same_sort)
    ]
    return frozenset(ours.token for ours, theirs in pairs if (ours.token in given[0]) != (theirs.token in given[1]))


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
        kinds, shares = _padded_apart(whole, known)
        best = (kinds, shares) if kinds > best[0] else best
        for axis, dropped in set.intersection(*({*ways(whole.shape, one.shape)} for one in known)):
            rows, cut = _rows(whole, known, axis, dropped=dropped)
            kinds, found = _same_rows(rows, [one.astype(whole.dtype) for one in cut])
            if not kinds:
                kinds, found = 1, _near_rows(rows, cut)
            if kinds > best[0] and sorted(row for part in found for row in part) == list(range(len(rows))):
                numbered = enumerate(found)
                best = kinds, [Share(axis, k, len(rows), tuple(part), dropped=dropped) for k, part in numbered]
    return best[1]


def _padded_apart(whole: Array, parts: Sequence[Array]) -> tuple[int, list[Share]]:
    """Return how many kinds of rows a batch has, and which of them each part has, that pads its own; 0 where none fits.

    Behind what a part holds of its rows the batch holds one number: each is padded to its longest one.
    """
    axes = {padded_axis(whole.shape, one.shape) for one in parts} - {0}
    if len(axes) != 1 or {one.ndim for one in parts} != {whole.ndim} or sum(map(len, parts)) != len(whole):
        return 0, []
    (axis,) = axes
    free = dict(enumerate(np.moveaxis(whole, axis, 1)))
    pads: set[float] = set()
    shares = []
    for number, part in enumerate(parts):
        rows, length = [], part.shape[axis]
        for row in np.moveaxis(part.astype(whole.dtype), axis, 1):
            begun = ((at, one[length:]) for at, one in free.items() if np.array_equal(one[:length], row))
            fits = ((at, rest) for at, rest in begun if not rest.size or (rest == rest.flat[0]).all())
            at, rest = next(fits, (-1, row))
            if at < 0:
                return 0, []
            rows.append(at)
            pads |= {*rest.flat[:1].tolist()}
            del free[at]
        shares.append(Share(0, number, len(whole), tuple(rows), lengths=(length, whole.shape[axis])))
    return (len({row.tobytes() for row in whole}), shares) if len(pads) == 1 else (0, [])


def padded_axis(whole: Sequence[int], part: Sequence[int]) -> int:
    """Return the axis along which fewer rows of a batch are shorter, too; 0 where there is none, or more."""
    if len(whole) != len(part) or len(whole) < 2 or part[0] >= whole[0]:
        return 0
    shorter = [axis for axis, (a, b) in enumerate(zip(whole, part, strict=True)) if b < a]
    other = any(b > a for a, b in zip(whole, part, strict=True))
    return shorter[1] if len(shorter) == 2 and not other else 0


def _rows(whole: Array, parts: Sequence[Array], axis: int, *, dropped: bool) -> tuple[Array, list[Array]]:
    """Return a value and parts of it with their rows first."""
    return np.moveaxis(whole, axis, 0), [one[None] if dropped else np.moveaxis(one, axis, 0) for one in parts]


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
    """Return which rows of a value are nearest to those of its parts; nothing where these are not related to them.

    Of many rows it is known only whether they are related in the order of the parts.
    """
    if whole.dtype.kind != "f" or sum(map(len, parts)) != len(whole):
        return []
    ours, theirs = (one.reshape(len(whole), -1).astype(np.float64) for one in (whole, np.concatenate(parts)))
    columns = np.linspace(0, ours.shape[1] - 1, min(ours.shape[1], _COLUMNS)).astype(int)
    ours, theirs = ours[:, columns], theirs[:, columns]
    order = list(range(len(whole)))
    if len(whole) <= _MOST:
        order = [int(np.linalg.norm(ours - one, axis=1).argmin()) for one in theirs]
    related = np.linalg.norm(ours[order] - theirs) < np.linalg.norm(ours) / 2
    rows = iter(order)
    return [[next(rows) for _ in part] for part in parts] if related else []


def ways(whole: Sequence[int], part: Sequence[int]) -> list[tuple[int, bool]]:
    """Return along which axes a value may hold parts of a shape, and whether these have no such axis themselves."""
    if len(whole) == len(part):
        apart = [(axis, False) for axis, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b]
        return apart if len(apart) == 1 else []
    return [(axis, True) for axis in range(len(whole)) if (*whole[:axis], *whole[axis + 1 :]) == tuple(part)]
