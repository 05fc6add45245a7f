"""Find parameters that the candidate holds with their rows or columns in another order, by the values of both sides.

Whoever converts weights may reorder channels, and the code with them: rotary halves for pairs, gates, a map flattened
with its channels last. Both hold the same rows then. Whether the code goes with them, forced runs tell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence, Set

import attrs
import numpy as np

from padiff.judging import is_close
from padiff.kinds import PRODUCTS
from padiff.numerics import Array, reorderings
from padiff.parameters import Correspondence, Link, UnitMatch, held_of
from padiff.recording import Order, Orders
from padiff.refinement._evidence import Evidence
from padiff.trace import Key

_SAMPLED = 8
"""Elements that tell, where each is one of the other side's, that both hold the same numbers."""
_KNOWN = 4
"""Orders of other parameters that are tried for the next one, the latest: what a layer takes one before made."""
_LAST = frozenset({"linear", "embedding", "layer_norm", "rms_norm"})
"""Kinds that have their channels last."""
Rows = tuple[int, ...]


def is_given(correspondence: Correspondence, evidence: Evidence) -> bool:
    """Return whether the candidate seems to hold the reference's numbers, in whatever order: one parameter tells."""
    links = [link for _, link in correspondence.links if type(link) is Link and link.alike and not link.buffer]
    for link in sorted(links, key=lambda link: math.prod(link.candidate.shape)):
        ours, theirs = held_of(link, evidence.reference, evidence.candidate)
        if ours is not None and len(np.unique(theirs.ravel()[:_SAMPLED])) > 1:
            return _are_among(theirs, ours)
    return False


def _are_among(theirs: Array, ours: Array) -> bool:
    """Return whether one array may hold another's numbers: whether the first few are among them."""
    return all(bool((ours == one).any()) for one in theirs.ravel()[:_SAMPLED])


def with_rows_by_value(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Let each parameter that holds the reference's rows or columns in another order be one that does so."""
    changed: dict[UnitMatch, UnitMatch] = {}
    known: dict[Rows, None] = {}
    for match in correspondence.one_to_one:
        turned: dict[Link, Link] = {}
        # A matrix tells the order in which the vectors beside it have to be.
        for link in sorted(match.links, key=lambda link: -len(link.candidate.shape)):
            if type(link) is not Link or not (link.alike and link.straight) or link in turned:
                continue
            ours, theirs = held_of(link, evidence.reference, evidence.candidate)
            if ours is None or is_close(ours, theirs, evidence.rule):
                continue
            ours = ours.astype(theirs.dtype) if theirs.dtype.itemsize < ours.dtype.itemsize else ours
            if not _are_among(theirs, ours):
                continue
            ways = (attrs.evolve(link, orders=orders) for orders in reorderings(ours, theirs, [*known][-_KNOWN:]))
            found = next((way for way in ways if is_close(way.to_candidate(ours), theirs, evidence.rule)), None)
            if found is not None:
                known |= dict.fromkeys(filter(None, found.orders))
                turned[link] = found
                turned |= {one: attrs.evolve(one, orders=found.orders[:1]) for one in _beside(match, found)}
        if turned:
            changed[match] = attrs.evolve(match, links=[turned.get(link, link) for link in match.links])
    return correspondence.rematched(changed) if changed else correspondence


def _beside(match: UnitMatch, known: Link) -> Iterator[Link]:
    """Yield what has to be in the order of a layer's parameter, too: a row for each of its output channels."""
    rows = known.orders[0]
    if match.candidate.kind is not None and rows:
        yield from (x for x in match.links if x.candidate.shape == (len(rows),) and x.candidate is not known.candidate)


def read_in_rows(correspondence: Correspondence) -> Orders:
    """Return how the values are read that parameters make or take whose rows are in another order."""
    found: dict[tuple[str, int, str, int], Order] = {}
    for match, link in correspondence.links:
        for axis, rows in enumerate(link.read_in):
            wanted = (("output", "input")[axis],) if match.candidate.kind in PRODUCTS else ("input", "output")
            for pair in correspondence.alignment.using(match.candidate.module.path) if rows else ():
                for what, index, ours, theirs in pair.tensors:
                    along = _channels(match, len(rows), ours.shape)
                    if what in wanted and along is not None and ours.shape == theirs.shape:
                        order = Order(tuple(range(len(ours.shape))), rows, along)
                        found.setdefault((*pair.key, what, index), order)
    return found


def _channels(match: UnitMatch, count: int, shape: Sequence[int]) -> int | None:
    """Return the axis of a value that may hold what a parameter has so many rows for."""
    fits = [axis for axis in range(1, len(shape)) if shape[axis] == count]
    return None if not fits else fits[-1 if match.candidate.kind in _LAST else 0]


def in_order(correspondence: Correspondence, wrong: Set[Key], *, of: Correspondence) -> Correspondence:
    """Return a correspondence with parameters in order whose rows are in another one, and the code does not go with.

    Of a known layer it does where what the layer makes, or takes, is read in that order; of others where none is wrong.
    """
    read = {(place[:2], order.rows) for place, order in correspondence.axes.items()}

    def goes(match: UnitMatch) -> bool:
        path = match.candidate.module.path
        orders = {order for link in match.links for order in link.read_in if order}
        calls = [pair.key for pair in correspondence.alignment.using(path)]
        if match.candidate.kind is not None and all(key[0] == path for key in calls):
            return bool(calls) and read.issuperset(itertools.product(calls, orders))
        return bool(calls) and wrong.isdisjoint(calls)

    return of.in_order(lambda match: not goes(match))


def as_read(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Let what layers hold that is the same in any order, ones or zeros, be in that in which what they make is read."""
    read = {path: order.rows for (path, _, what, _), order in correspondence.axes.items() if what == "output"}
    changed = {}
    for match in correspondence.one_to_one:
        rows = read.get(match.candidate.module.path, ())
        if rows and match.candidate.kind is not None:
            links = [_same_in(link, tuple(np.argsort(rows).tolist()), evidence) for link in match.links]
            changed[match] = attrs.evolve(match, links=links)
    return correspondence.rematched(changed) if changed else correspondence


def _same_in(link: Link, rows: Rows, evidence: Evidence) -> Link:
    if type(link) is not Link or not link.alike or link.candidate.shape != (len(rows),):
        return link
    held = link.held(lambda parameter: evidence.candidate.value(parameter.path))
    return attrs.evolve(link, orders=(rows,)) if held is not None and np.array_equal(held[list(rows)], held) else link
