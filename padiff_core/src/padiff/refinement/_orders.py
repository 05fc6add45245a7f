"""Doubt the orders in which the candidate's values are read, and ask forcing.

Behind a fault the free runs may tell no order, where forced values do: what a call takes then was made of the
reference's own. And a value may be in another order because a transposition was forgotten: what takes it is wrong then,
and right once it is given the reference's value as it is. That refutes the order: the code before is at fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs

from padiff.alignment import may_be_permuted, orders_between, row_orders
from padiff.judging import Judge, Suspicion
from padiff.numerics import SAME, difference, epsilon
from padiff.parameters import Correspondence
from padiff.recording import Order, Orders, composed
from padiff.refinement._axes import aligned, read_so, without
from padiff.refinement._evidence import Evidence
from padiff.refinement._rows import as_read, in_order, read_in_rows
from padiff.refinement._trials import RIGHT, Trial
from padiff.report import Verdict
from padiff.trace import Key

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
    plain = in_order(found, {suspicion.pair.key for suspicion in _wrong(found, evidence)}, of=correspondence)
    if plain is correspondence:
        return as_read(found, evidence)
    evidence.give(plain)
    return with_orders_borne_out(aligned(plain, evidence), evidence)


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
    while len(tried) < _MOST and (left := [one.pair for one in wrong if one.pair.key not in tried]):
        first = left[0].candidate
        alike = [pair.key for pair in left if pair.candidate.module.class_name == first.module.class_name]
        plain = _refuted(correspondence, alike, evidence)
        tried.add(first.key)
        if plain is not None:
            correspondence, wrong = plain, _wrong(plain, evidence)
    return correspondence


def _refuted(correspondence: Correspondence, keys: Sequence[Key], evidence: Evidence) -> Correspondence | None:
    """Return the correspondence without the orders in some calls; None unless these alone make the first wrong."""
    pairs = [pair for pair in map(correspondence.alignment.of_key, keys) if pair is not None]
    inside = {call.key for one in pairs for call in one.candidate.subtree() if call.parent is not None}
    places = {place for place in correspondence.axes if place[:2] in inside}
    pair = next(iter(pairs), None)
    if pair is None or not places:
        return None
    refuted = correspondence.refuted | places
    plain = attrs.evolve(correspondence, refuted=refuted)
    plain = read_so(plain, without(correspondence.axes, refuted), evidence)
    same = plain.alignment.of_candidate(pair.candidate)
    if same is None or same.reference is not pair.reference:
        return None
    # In the whole model shapes may no longer be the reference's; given its values the call has them.
    given = attrs.evolve(same)
    given.inputs, given.outputs = pair.inputs, pair.outputs
    bench = evidence.bench(plain)
    if Trial(bench, given, bench.trace).error(plain.alignment.with_pair(given)) > RIGHT:
        return None
    # What is as right as it is read now is wrong for another reason: a norm is right either way, but for its epsilon.
    now = evidence.bench(correspondence)
    return plain if Trial(now, pair, now.trace).error(correspondence.alignment) > RIGHT else None


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
