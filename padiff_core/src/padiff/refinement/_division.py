"""Find out whether the reference ran on several batches in one where the candidate runs on each by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.forcing import Division, LocalSide, Place, Share, divided
from padiff.numerics import SAME, difference, epsilon_of, sample
from padiff.parameters import Correspondence
from padiff.refinement._evidence import Evidence
from padiff.trace import Call, Leaf, Trace

_UNRELATED = 2**0.5
"""How far apart values are that have nothing to do with each other."""
_MOST = 4
"""Batches, or chunks, that one side runs in one."""


def with_batches_divided(correspondence: Correspondence, evidence: Evidence) -> None:
    """Let the reference be read as if it had run on each batch by itself, where the candidate does."""
    if not isinstance(evidence.reference, LocalSide):
        return
    division = _division(correspondence, evidence.trace, evidence.free(correspondence.axes))
    if division is not None:
        evidence.reference, evidence.trace = divided(evidence.reference, evidence.trace, division)


def _division(known: Correspondence, trace: Trace, free: Trace) -> Division | None:
    """Return how calls are divided that the candidate makes some times as often, each on as much less."""
    ours, theirs = trace.by_module(), free.by_module()
    paths = dict.fromkeys((match.reference.module.path, match.candidate.module.path) for match in known.matches)
    often = [
        (ours[a], theirs[b])
        for a, b in paths
        if a and b and ours.get(a) and len(theirs.get(b, ())) > len(ours[a]) and len(theirs[b]) % len(ours[a]) == 0
    ]
    found = {both[0][0]: _share(*both) for both in often}
    told = set(found.values()) - {None}
    share = next(iter(told)) if len(told) == 1 else None
    if share is None or any(call.module.kind == "batch_norm" and call.training for calls, _ in often for call in calls):
        return None
    places: set[Place] = set()
    calls: set[Call] = set()
    for mine, yours in often:
        calls.update(mine)
        # Of axes in another order shapes do not tell: what is divided elsewhere does.
        if found[mine[0]] is not None:
            shapes = {leaf.shape for call in yours for leaf in (*call.inputs, *call.outputs)}
            met = [found for call in mine for found in _places(call, share)]
            places.update(place for place, leaf in met if _is_part(leaf, share, shapes))
    _add_around(trace, share, calls, places)
    order = _ordered(trace, free, share, often)
    return Division(order, frozenset(call.key for call in calls), frozenset(places))


def _share(ours: Sequence[Call], theirs: Sequence[Call]) -> Share | None:
    """Return what each call of the candidate's has of one of the reference's: the first of so many parts."""
    count = len(theirs) // len(ours)
    pairs = zip(itertools.chain(*[ours] * count), theirs, strict=True)
    found = {_axis(a.inputs[:1], b.inputs[:1], count) for a, b in pairs}
    axis = next(iter(found)) if len(found) == 1 and count <= _MOST else None
    return None if axis is None else Share(axis, 0, count)


def _axis(ours: Sequence[Leaf], theirs: Sequence[Leaf], count: int) -> int | None:
    """Return the only axis along which a value has some times the extent of another."""
    shapes = [leaf.shape for leaf in (*ours, *theirs)]
    if len(shapes) < 2 or len(shapes[0]) != len(shapes[1]):
        return None
    axes = [axis for axis, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b]
    fits = len(axes) == 1 and shapes[0][axes[0]] == count * shapes[1][axes[0]]
    return axes[0] if fits else None


def _places(call: Call, share: Share) -> Iterator[tuple[Place, Leaf]]:
    """Yield the tensors of a call that can be divided, each with its place."""
    for what, leaves in (("input", call.inputs), ("output", call.outputs)):
        for index, leaf in enumerate(leaves):
            if len(leaf.shape) > share.axis and leaf.shape[share.axis] % share.count == 0:
                yield (*call.key, what, index), leaf


def _is_part(leaf: Leaf, share: Share, shapes: set[tuple[int, ...]]) -> bool:
    """Return whether the candidate's calls take, or give, a part of a tensor and not all of it."""
    return share.shape(leaf.shape) in shapes or leaf.shape not in shapes


def _add_around(trace: Trace, share: Share, calls: set[Call], places: set[Place]) -> None:
    """Divide what is called beside, of no parameters, and the composites that hold nothing else; operations within."""
    known = {place: leaf for call in calls for place, leaf in _places(call, share)}
    extents = {known[place].shape[share.axis] for place in places}
    homes = {call.parent for call in calls}
    for call in sorted(trace.calls, key=lambda call: call.end):
        inside = [child for child in call.children if not child.module.operation]
        beside = not inside and call.parent in homes
        if call.parent is None or call.module.operation or not (beside or (inside and calls.issuperset(inside))):
            continue
        found = [place for place, leaf in _places(call, share) if leaf.shape[share.axis] in extents]
        if call not in calls and found:
            calls.add(call)
            homes.add(call.parent)
            places.update(found)
        elif call in calls and not any(place in places for place, _ in _places(call, share)):
            places.update(found)
    for call in trace.calls:
        if call.module.operation and call.parent in calls:
            calls.add(call)
            places.update(place for place, leaf in _places(call, share) if leaf.shape[share.axis] in extents)


def _ordered(
    trace: Trace, free: Trace, share: Share, often: Sequence[tuple[Sequence[Call], Sequence[Call]]]
) -> tuple[Share, ...]:
    """Return the parts in the order in which the candidate runs on them, as far as values tell: equal ones, then near.

    They lie one behind the other, or each is scattered.
    """
    ways = [
        [attrs.evolve(share, number=number, scattered=way) for number in range(share.count)] for way in (False, True)
    ]
    same, apart = np.zeros((2, 2, share.count, share.count))
    for ours, theirs in often:
        for place, other in enumerate(theirs):
            call = ours[place % len(ours)]
            for a, b in ((call.inputs[:1], other.inputs[:1]), (call.outputs[:1], other.outputs[:1])):
                values = [trace.value(leaf) for leaf in a]
                seen = [free.samples.get(leaf.token) for leaf in b]
                if values and seen and values[0] is not None and seen[0] is not None:
                    for way, number in np.ndindex(len(ways), share.count):
                        off = difference(sample(ways[way][number].read(values[0])), seen[0]).rel_l2
                        at = way, place // len(ours), number
                        same[at] += off <= SAME(epsilon_of(a[0].dtype, b[0].dtype))
                        apart[at] += min(off, _UNRELATED)
    orders = [(way, order) for way in range(len(ways)) for order in itertools.permutations(range(share.count))]
    sums = {(way, order): [m[way, range(share.count), order].sum() for m in (same, apart)] for way, order in orders}
    way, order = min(orders, key=lambda one: (-sums[one][0], sums[one][1]))
    return tuple(ways[way][number] for number in order)
