"""Tell by gradients how a parameter holds others, where values do not: scales of ones, and shifts of zeros."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import attrs

from padiff.forcing import Reading, gradients_of, is_recorded
from padiff.numerics import difference
from padiff.parameters import Arrangement, Correspondence, Packing, UnitMatch, read_of
from padiff.refinement._evidence import Evidence
from padiff.trace import temporary_store

_MOST = 64
"""Orders that are looked at of one parameter."""


def with_orders_by_gradient(known: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with parts of packed parameters in the order in which the gradients are nearest.

    Of those orders alone in which the candidate holds the same values: any run is the same under all of these.
    """
    runs = evidence.task.backward and not is_recorded(evidence.candidate)
    some = [one for one in known.packed if not one.packing.layers] if runs else []
    alike = {one: [*_alike(one.packing, evidence)] for one in some}
    if not any(len(ways) > 1 for ways in alike.values()):
        return known
    with temporary_store() as store:
        task = attrs.evolve(evidence.task, ends=True)
        recorded = evidence.side(known.axes).record(task, store, values=True)
        ours, theirs = map(gradients_of, (evidence.trace, recorded))
        for one, ways in alike.items():
            apart = [_apart(one.packing.matches(way), ours, theirs) for way in ways]
            if len(ways) > 1 and min(apart) < _apart(one.matches, ours, theirs):
                best = ways[apart.index(min(apart))]
                known = known.arranged(one, best).settling({one.packing.packed.path: one.packing.named(best)})
    return known


def _alike(packing: Packing, evidence: Evidence) -> Iterator[Arrangement]:
    """Yield the orders in which the candidate holds what the reference does."""
    ways = itertools.islice(packing.arrangements(), _MOST)
    return (way for way in ways if all(map(evidence.holds_alike, packing.matches(way))))


def _apart(matches: Sequence[UnitMatch], ours: Reading, theirs: Reading) -> float:
    """Return how far apart the gradients of what is matched are."""
    return math.hypot(*_differences(matches, ours, theirs))


def _differences(matches: Sequence[UnitMatch], ours: Reading, theirs: Reading) -> Iterator[float]:
    for match in matches:
        for link in match.links:
            both = read_of(link, ours, theirs, gradient=True, zeros=True)
            if both is not None:
                yield difference(*both).max_abs
