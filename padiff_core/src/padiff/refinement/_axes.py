"""Match the calls, and read the candidate's values with their axes in the reference's order."""

from __future__ import annotations

import attrs

from padiff.alignment import Alignment, align, axis_orders
from padiff.parameters import Correspondence
from padiff.recording import Orders, composed
from padiff.refinement._evidence import Evidence

_ROUNDS = 3
"""Runs of the candidate, each read in a better order: calls that are matched then tell of further ones."""


def aligned(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Match the calls of both free runs; the candidate is run once more where its axes are read in another order."""
    correspondence = _with_calls(correspondence, evidence)
    for _ in range(_ROUNDS):
        read = correspondence.axes
        further = axis_orders(correspondence.alignment, evidence.trace, evidence.free(read), read)
        axes = without(composed(correspondence.axes, further), correspondence.refuted)
        if axes == correspondence.axes:
            break
        correspondence = _with_calls(attrs.evolve(correspondence, axes=axes), evidence)
    return correspondence


def led(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return it with the calls matched that the candidate makes where each is fed from the reference.

    Behind a fault a model goes another way: experts get other tokens, or none, and a detector finds other boxes.
    """
    for _ in range(_ROUNDS):
        if not _goes_another_way(correspondence.alignment) or not evidence.leads(correspondence):
            break
        correspondence = aligned(correspondence, evidence)
    return correspondence


def _goes_another_way(calls: Alignment) -> bool:
    """Return whether calls that belong together take or give other sizes, or one side calls a module more often.

    Where the models themselves give other sizes, the free runs are what is to be told.
    """
    if any(top.unfit("outputs") for top in calls.tops):
        return False
    if any(pair.unfit("inputs") or pair.unfit("outputs") for pair in calls.pairs):
        return True
    paired = {pair.reference.path for pair in calls.pairs}, {pair.candidate.path for pair in calls.pairs}
    sides = calls.left_reference, calls.left_candidate
    return any(call.path in known for known, left in zip(paired, sides, strict=True) for call in left)


def read_so(correspondence: Correspondence, axes: Orders, evidence: Evidence) -> Correspondence:
    """Return the correspondence with the candidate's values read in some orders, and the calls matched anew."""
    return _with_calls(attrs.evolve(correspondence, axes=axes), evidence)


def without(axes: Orders, refuted: frozenset[tuple[str, int, str, int]]) -> Orders:
    """Return the orders of all places but some."""
    return {place: order for place, order in axes.items() if place not in refuted}


def _with_calls(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    joined = {match for one in correspondence.packed if not one.packing.of_layers for match in one.matches}
    modules = [match.modules for match in correspondence.matches if match not in joined]
    traces = evidence.trace, evidence.free(correspondence.axes)
    calls = align(*traces, modules, correspondence.fixed, by_order=correspondence.by_order)
    ours, theirs = correspondence.sharing
    tables = (match for one in correspondence.packed if one.packing.of_tables for match in one.matches)
    parts = {(match.modules.reference, match.modules.candidate) for match in (*joined, *tables)}
    none = [
        pair
        for pair in calls.pairs
        if pair.reference.path in ours
        or pair.candidate.path in theirs
        or (pair.of_one_kind and (pair.reference.path, pair.candidate.path) in parts)  # one looks up what several do
    ]
    return attrs.evolve(correspondence, calls=calls.without(none) if none else calls)
