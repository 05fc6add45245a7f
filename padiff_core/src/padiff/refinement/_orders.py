"""Doubt the orders in which the candidate's values are read, and ask forcing.

Behind a fault the free runs may tell no order, where forced values do: what a call takes then was made of the
reference's own. And a value may be in another order because a transposition was forgotten: what takes it is wrong then,
and right once it is given the reference's value as it is. That refutes the order: the code before is at fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import attrs

from padiff.alignment import Pair, may_be_permuted, orders_between, row_orders
from padiff.judging import Judge, Suspicion
from padiff.numerics import SAME, difference, epsilon
from padiff.parameters import Correspondence, UnitMatch
from padiff.recording import Order, Orders, composed
from padiff.refinement._axes import aligned, read_so, without
from padiff.refinement._evidence import Evidence
from padiff.refinement._rows import as_read, in_order, read_in_rows
from padiff.refinement._trials import RIGHT, Trial
from padiff.report import Verdict
from padiff.trace import Call, Key

_LAYERS = 4
"""Layers of one piece of code: queries, keys, values, and what takes them on."""
Place = tuple[str, int, str, int]
_MOST = 4
"""Calls whose order is doubted: one transposition that was forgotten puts few in doubt."""
_TRIES = 8
"""Runs, free and forced, in which a value is read in the order that a forced run told."""


def with_orders_borne_out(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with each value read in the order that forcing bears out.

    The candidate runs forced once, and again for each of a few values whose order is in doubt. Parameters whose rows
    are in another order stay so where the code goes with them; the others differ.
    """
    found = _unless_refuted(_as_forced(_with_rows(correspondence, evidence), evidence), evidence)
    if not correspondence.row_orders:
        return found
    wrong = {suspicion.pair.key for suspicion in _wrong(found, evidence)}
    plain = in_order(found, wrong, evidence.trace, of=correspondence)
    if plain is correspondence:
        return as_read(found, evidence)
    evidence.give(plain)
    return with_orders_borne_out(aligned(attrs.evolve(plain, refuted=found.refuted), evidence), evidence)


def _with_rows(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with rows read in another order, where less is wrong then."""
    free = evidence.free(correspondence.axes)
    alike = cache(
        lambda: evidence.transfer or all(evidence.holds_alike(match) for match in correspondence.matches if match.links)
    )
    known = correspondence.row_orders
    if not known and not may_be_permuted(correspondence.alignment, evidence.trace, free, alike):
        return correspondence
    with evidence.whole(correspondence.axes) as whole:
        further = row_orders(correspondence.alignment, evidence.trace, whole, known)
    further = without({**further, **read_in_rows(correspondence)}, correspondence.refuted)
    if not further:
        return correspondence
    before = len(_wrong(correspondence, evidence))
    read = read_so(correspondence, composed(correspondence.axes, further), evidence)
    return read if len(_wrong(read, evidence)) < before else correspondence


def _wrong(correspondence: Correspondence, evidence: Evidence) -> list[Suspicion]:
    """Return what a forced run shows to be wrong: of each piece of code that made something wrong, the first."""
    found: dict[Any, Suspicion] = {}
    for suspicion in evidence.judged(correspondence).forward(rough=True):
        if suspicion.verdict is Verdict.DIFFERS:
            found.setdefault((suspicion.pair.key, suspicion.between), suspicion)
    return list(found.values())


def _unless_refuted(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence without the orders that alone make code wrong, each in all wrong calls of a class."""
    tried: set[Key] = set()
    wrong = _wrong(correspondence, evidence) if correspondence.axes else []
    while len(tried) < _MOST and (left := [one for one in wrong if one.pair.key not in tried]):
        pair = left[0].pair
        alike = [x for x in left if x.pair.candidate.module.class_name == pair.candidate.module.class_name]
        tried.add(pair.key)
        for places, alone in _doubts(correspondence, alike, told=not evidence.transfer).items():
            plain = _refuted(correspondence, pair, places, evidence)
            again = [] if plain is None else _wrong(plain, evidence)
            if plain is not None and not (alone and len(again) >= len(wrong)):
                correspondence, wrong = plain, again
                break
    return correspondence


def _doubts(correspondence: Correspondence, wrong: Sequence[Suspicion], *, told: bool) -> dict[frozenset[Place], bool]:
    """Return which places of wrong calls to doubt, the fewest first, and which are none of parameters in their order.

    Code that takes channels in any order is right with all in the reference's: beside a fault few orders are wrong.
    Where what parameters hold in order is ``told`` as wrong, those are no more than code takes of its own, and what
    they made is read in it still, unless less is wrong then.
    """
    axes, orders = correspondence.axes, set(correspondence.row_orders)
    calls = [call for one in wrong for call in one.pair.candidate.subtree() if call.parent is not None]
    tokens = {
        (call.key, what, index): leaf.token
        for call in calls
        for what, leaves in (("input", call.inputs), ("output", call.outputs))
        for index, leaf in enumerate(leaves)
    }
    # What is read in another shape is compared so or not at all: that nothing is wrong then says nothing.
    found = {place: tokens.get((place[:2], *place[2:])) for place, order in axes.items() if order.fold is None}
    found = {place: token for place, token in found.items() if token is not None}
    if not orders:
        return {frozenset(found): False} if found else {}
    ends = {token for one in wrong for token in _ends(one)}
    beside = frozenset(place for place, token in found.items() if token in ends)
    rows = {axes[place].rows for place in beside}
    ways = beside, frozenset(place for place in found if axes[place].rows in rows), frozenset(found)
    held = {call.key for match, link in correspondence.links if link.orders for call in _calls(correspondence, match)}
    counts = {way: len({place[0] for place in way if place[:2] in held}) for way in ways if way}
    few = {way: count for way, count in counts.items() if count <= _LAYERS * len(wrong) or not told}
    return {way: told and not (count or orders.isdisjoint(axes[x].rows for x in way)) for way, count in few.items()}


def _ends(suspicion: Suspicion) -> Iterator[int]:
    """Yield the values between which code is wrong: what the call before it gave, and what the next one takes."""
    first, last = suspicion.between or ("", "")
    for child in suspicion.pair.candidate.children:
        name = suspicion.pair.name_of(child)
        yield from (leaf.token for leaf in (*child.outputs * (name == first), *child.inputs * (name == last)))


def _calls(correspondence: Correspondence, match: UnitMatch) -> list[Call]:
    return [pair.candidate for pair in correspondence.alignment.using(match.candidate.module.path)]


def _refuted(
    correspondence: Correspondence, pair: Pair, places: frozenset[Place], evidence: Evidence
) -> Correspondence | None:
    """Return the correspondence without the orders in some places; None unless these alone make a call wrong."""
    refuted = correspondence.refuted | places
    plain = attrs.evolve(correspondence, refuted=refuted)
    plain = read_so(plain, without(correspondence.axes, refuted), evidence)
    same = plain.alignment.of_candidate(pair.candidate)
    if same is None or same.reference is not pair.reference:
        return None
    # In the whole model shapes may no longer be the reference's; given its values the call has them.
    given = attrs.evolve(same)
    given.inputs, given.outputs = pair.inputs, pair.outputs
    # What is as right as it is read now is wrong for another reason: a norm is right either way, but for its epsilon.
    now, bench = evidence.bench(correspondence), evidence.bench(plain)
    errors = Trial(now, pair, now.trace).errors(correspondence.alignment)
    wrong = {token for token, error in errors.items() if error > RIGHT}
    # A value that has no counterpart but in its order is not compared without it: that tells nothing.
    needed = frozenset(token for token in wrong if isinstance(token, int))
    trial = Trial(bench, given, bench.trace, needed)
    return plain if wrong and trial.error(plain.alignment.with_pair(given)) <= RIGHT else None


def _as_forced(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with values read so that they are the reference's, given that what made them was."""
    best, current, tries = correspondence, correspondence, 0
    wrong = least = _wrong(correspondence, evidence)
    rest = list(wrong)
    while rest and tries < _TRIES:
        further = _order_of_forced(rest.pop(0), evidence.judged(current))
        if further is None:
            continue
        tries += 1
        read = read_so(current, composed(current.axes, further), evidence)
        again = _wrong(read, evidence)
        if len(again) <= len(wrong):
            # Of a region that is read so as a whole, what comes next may be wrong now instead.
            current, wrong, rest = read, again, list(again)
        if len(again) < len(least):
            best, least = read, again
    return best


def _order_of_forced(suspicion: Suspicion, judge: Judge) -> Orders | None:
    """Return the order in which a wrong value is the reference's, with the others of its call that may be so."""
    spot = suspicion.spot
    if (
        spot is None
        or spot.pair.candidate.parent is None
        or len(orders_between(spot.reference.shape, spot.candidate.shape)) < 2
        or suspicion.pair.misfed
    ):
        return None
    call, truth = spot.pair.candidate, judge.trace.value(spot.reference)
    local = judge.settler.made_alone(suspicion.pair, spot)
    if local is None or truth is None or local.shape != spot.candidate.shape:
        return None
    bound = SAME(epsilon(truth.dtype))
    for axes in orders_between(truth.shape, local.shape):
        order = Order(axes)
        if not order.plain and difference(truth, order.read(local)).rel_l2 <= bound:
            return {
                (*call.key, what, theirs): order
                for what, ties, ours, leaves in (
                    ("input", spot.pair.inputs, spot.pair.reference.inputs, call.inputs),
                    ("output", spot.pair.outputs, spot.pair.reference.outputs, call.outputs),
                )
                for mine, theirs in ties
                if leaves[theirs].token == spot.candidate.token
                or (call.leaf and axes in orders_between(ours[mine].shape, leaves[theirs].shape))
            }
    return None
