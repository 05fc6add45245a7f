"""Find parameters that the candidate holds with their rows or columns in another order, by the values of both sides.

Whoever converts weights may reorder channels, and the code with them: rotary halves for pairs, gates, a map flattened
with its channels last. Both hold the same rows then. Whether the code goes with them, forced runs tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.judging import is_close
from padiff.kinds import PRODUCTS
from padiff.numerics import Array, reorderings
from padiff.parameters import Correspondence, Link, UnitMatch, held_of
from padiff.recording import Order, Orders
from padiff.refinement._evidence import Evidence
from padiff.trace import Key, Trace

_SAMPLED = 8
"""Elements that tell, where each is one of the other side's, that both hold the same numbers."""
_KNOWN = 4
"""Orders of other parameters that are tried for the next one, the latest: what a layer takes one before made."""
_LAST = frozenset({"linear", "embedding", "layer_norm", "rms_norm"})
"""Kinds that have their channels last."""
_ENDS = "output", "input"
"""What has a channel for each row, and each column, of a matrix."""
Rows = tuple[int, ...]


def is_given(correspondence: Correspondence, evidence: Evidence) -> bool:
    """Return whether the candidate seems to hold the reference's numbers, in whatever order: one parameter tells."""
    links = [link for _, link in correspondence.links if type(link) is Link and link.alike and not link.buffer]
    for link in sorted(links, key=lambda link: math.prod(link.candidate.shape)):
        ours, theirs = _held(link, evidence)
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
            if type(link) is not Link or not link.alike or link in turned:
                continue
            ours, theirs = _held(link, evidence)
            if ours is None or is_close(ours, theirs, evidence.rule) or not _are_among(theirs, ours):
                continue
            vectors = (_held(one, evidence) for one in _of_rows(match, link))
            told = [(mine, yours) for mine, yours in vectors if mine is not None]
            orders = reorderings(ours, theirs, [*known][-_KNOWN:], told)
            ways = (attrs.evolve(link, orders=one) for one in orders)
            found = next((way for way in ways if is_close(way.to_candidate(ours), theirs, evidence.rule)), None)
            if found is not None:
                known |= dict.fromkeys(filter(None, found.orders))
                turned[link] = found
                beside = _of_rows(match, found) if found.orders[0] else ()
                turned |= {one: attrs.evolve(one, orders=found.orders[:1]) for one in beside}
        if turned:
            changed[match] = attrs.evolve(match, links=[turned.get(link, link) for link in match.links])
    return correspondence.rematched(changed) if changed else correspondence


def _held(link: Link, evidence: Evidence) -> tuple[Array | None, Array]:
    """Return what both sides hold, the reference's in the candidate's type where that is narrower."""
    ours, theirs = held_of(link, evidence.reference, evidence.candidate)
    narrower = ours is not None and theirs.dtype.itemsize < ours.dtype.itemsize
    return (ours.astype(theirs.dtype) if ours is not None and narrower else ours), theirs


def _of_rows(match: UnitMatch, known: Link) -> Iterator[Link]:
    """Yield what holds an element for each row of a layer's parameter: for each of its output channels."""
    if match.candidate.kind is not None:
        rows = known.candidate.shape[:1]
        yield from (x for x in match.links if x.candidate.shape == rows and x.candidate is not known.candidate)


def read_in_rows(correspondence: Correspondence) -> Orders:
    """Return how the values are read that parameters make or take whose rows are in another order.

    What the whole model takes and gives is what its user sees: it is in the reference's order.
    """
    found: dict[tuple[str, int, str, int], Order] = {}
    for match, link in correspondence.links:
        for axis, rows in enumerate(link.read_in):
            wanted = _ENDS[axis : axis + 1] if match.candidate.kind in PRODUCTS else _ENDS
            for pair in correspondence.alignment.using(match.candidate.module.path) if rows else ():
                for what, index, ours, theirs in pair.tensors if pair.candidate.parent is not None else ():
                    along = _channels(match, len(rows), ours.shape)
                    if what in wanted and along is not None and ours.shape == theirs.shape:
                        order = Order(tuple(range(len(ours.shape))), rows, along)
                        found.setdefault((*pair.key, what, index), order)
    return found


def _channels(match: UnitMatch, count: int, shape: Sequence[int]) -> int | None:
    """Return the axis of a value that may hold what a parameter has so many rows for."""
    fits = [axis for axis in range(1, len(shape)) if shape[axis] == count]
    return None if not fits else fits[-1 if match.candidate.kind in _LAST else 0]


def in_order(correspondence: Correspondence, wrong: Set[Key], trace: Trace, *, of: Correspondence) -> Correspondence:
    """Return a correspondence with parameters in order whose rows are in another one, and the code does not go with.

    Of a known layer it does where what the layer makes, or takes, is read in that order; of others, and of channels
    that stay inside one, where none is wrong that uses them, as the reference's ``trace`` tells.
    """
    read = {(place[:2], what, order.rows) for place, order in correspondence.axes.items() for what in ("", place[2])}

    def goes(match: UnitMatch, link: Link, axis: int) -> bool:
        path, kind = match.candidate.module.path, match.candidate.kind
        pairs = correspondence.alignment.using(path)
        right = wrong.isdisjoint(pair.key for pair in pairs)
        if not is_called(match, pairs, trace):
            return right and is_used(link, axis, trace)
        if kind in PRODUCTS:
            return all((pair.key, _ENDS[axis], link.read_in[axis]) in read for pair in pairs)
        orders = {order for one in match.links for order in one.read_in if order}
        at_ends = {order for order in orders if any(_is_at_end(pair, len(order)) for pair in pairs)}
        if not all((pair.key, "", order) in read for pair in pairs for order in at_ends):
            return False
        return link.read_in[axis] in at_ends or (right and is_used(link, axis, trace))

    return of.in_order(goes)


def is_called(match: UnitMatch, pairs: Sequence[Pair], trace: Trace) -> bool:
    """Return whether what uses parameters is calls of the known layer that holds them, of which something comes."""
    path = match.candidate.module.path
    made = [leaf for pair in pairs for leaf in pair.reference.outputs if leaf.differentiable]
    comes = not (made and trace.gradients) or any(leaf.token in trace.gradients for leaf in made)
    return match.candidate.kind is not None and bool(pairs) and all(pair.key[0] == path for pair in pairs) and comes


def is_used(link: Link, axis: int, trace: Trace) -> bool:
    """Return whether a gradient of the reference comes to rows that are in another order: unused ones tell nothing."""
    kept = trace.parameter_gradients
    found = link.gradient(lambda parameter: trace.array(key) if (key := kept.get(parameter.path, -1)) >= 0 else None)
    order = np.array(link.orders[axis])
    return found is not None and bool(found.take(np.flatnonzero(order != np.arange(len(order))), axis).any())


def _is_at_end(pair: Pair, count: int) -> bool:
    """Return whether what a call takes or gives has so many channels."""
    return any(count in ours.shape[1:] for _, _, ours, _ in pair.tensors)


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
