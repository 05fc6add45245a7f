"""Match the calls, and read the candidate's values with their axes in the reference's order.

A value may be in another order because a transposition was forgotten. What takes it is wrong then, and right once it
is given the reference's value as it is: that refutes the order, and the code that made the value is at fault.
"""

from __future__ import annotations

from typing import Any

import attrs

from padiff.alignment import Pair, align, may_be_permuted, row_orders, turns
from padiff.judging import Suspicion
from padiff.parameters import Correspondence
from padiff.recording import Turns, composed
from padiff.refinement._evidence import Evidence
from padiff.refinement._trials import RIGHT, Trial
from padiff.report import Verdict

__all__ = ["aligned", "without_refuted_orders"]

_ROUNDS = 3
"""Runs of the candidate, each read in a better order: calls that are matched then tell of further ones."""
_MOST = 4
"""Calls whose order is doubted: one transposition that was forgotten puts few in doubt."""


def aligned(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Match the calls of both free runs; the candidate is run once more where its axes are read in another order."""
    correspondence = _with_calls(correspondence, evidence)
    for _ in range(_ROUNDS):
        further = turns(correspondence.alignment, evidence.trace, evidence.free(correspondence.axes))
        axes = _without(composed(correspondence.axes, further), correspondence.refuted)
        if axes == correspondence.axes:
            break
        correspondence = _with_calls(attrs.evolve(correspondence, axes=axes), evidence)
    return correspondence


def without_refuted_orders(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Read the values of a call as they are where that makes it right, and another order wrong.

    The candidate runs forced once, and again for each of a few calls that are wrong.
    """
    correspondence = _with_rows(correspondence, evidence)
    if not correspondence.axes:
        return correspondence
    wrong = {s.pair.key: s.pair for s in _wrong(correspondence, evidence)}
    for pair in list(wrong.values())[:_MOST]:
        correspondence = _doubted(correspondence, pair, evidence)
    return correspondence


def _with_rows(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with rows read in another order, where less is wrong then."""
    if not may_be_permuted(correspondence.alignment, evidence.trace, evidence.free(correspondence.axes)):
        return correspondence
    with evidence.whole(correspondence.axes) as whole:
        further = row_orders(correspondence.alignment, evidence.trace, whole)
    if not further:
        return correspondence
    before = len(_wrong(correspondence, evidence))
    read = _with_calls(attrs.evolve(correspondence, axes=composed(correspondence.axes, further)), evidence)
    return read if len(_wrong(read, evidence)) < before else correspondence


def _wrong(correspondence: Correspondence, evidence: Evidence) -> list[Suspicion]:
    """Return what a forced run shows to be wrong: of each piece of code that made something wrong, the first."""
    found: dict[Any, Suspicion] = {}
    for suspicion in evidence.judged(correspondence).forward(rough=True):
        if suspicion.verdict is Verdict.DIFFERS:
            found.setdefault((suspicion.pair.key, suspicion.between), suspicion)
    return list(found.values())


def _doubted(correspondence: Correspondence, pair: Pair, evidence: Evidence) -> Correspondence:
    """Return the correspondence with the order of a call's values refuted, where these alone make the call wrong."""
    inside = {call.key for call in pair.candidate.subtree()}
    places = {place for place in correspondence.axes if place[:2] in inside}
    if pair.candidate.parent is None or not any(place[:3] == (*pair.key, "input") for place in places):
        return correspondence
    refuted = correspondence.refuted | places
    plain = attrs.evolve(correspondence, axes=_without(correspondence.axes, refuted), refuted=refuted)
    plain = _with_calls(plain, evidence)
    same = plain.alignment.of_candidate(pair.candidate)
    if same is None or same.reference is not pair.reference:
        return correspondence
    # In the whole model shapes may no longer be the reference's; given its values the call has them.
    given = attrs.evolve(same)
    given.inputs, given.outputs = pair.inputs, pair.outputs
    bench = evidence.bench(plain)
    error = Trial(bench, given, bench.trace).error(plain.alignment.with_pair(given))
    return plain if error <= RIGHT else correspondence


def _without(axes: Turns, refuted: frozenset[tuple[str, int, str, int]]) -> Turns:
    return {place: order for place, order in axes.items() if place not in refuted}


def _with_calls(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    modules = [match.modules for match in correspondence.matches]
    calls = align(evidence.trace, evidence.free(correspondence.axes), modules, correspondence.fixed)
    return attrs.evolve(correspondence, calls=calls)
