"""Match parameters anew where names or order were believed, and what the candidate does puts that in doubt.

The dataflow of both sides is then recorded, which a diff of models that agree does without.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.forcing import Side
from padiff.numerics import ACCUMULATED, epsilon, epsilon_of, relative
from padiff.parameters import Correspondence, HeldUnit, pair_parameters, with_copies, with_joined_first, with_shared
from padiff.refinement._axes import aligned
from padiff.refinement._buffers import with_buffers_matched
from padiff.refinement._evidence import Evidence
from padiff.refinement._exchanges import with_exchanges
from padiff.refinement._layouts import with_layouts
from padiff.refinement._mismatches import without_mismatches
from padiff.refinement._orders import with_orders_borne_out


def with_dataflow(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return what the dataflow says, where it says otherwise and less differs under it.

    It tries all that the dataflow says, and what it says but for symmetries, which names and the order of definition
    then settle, or exchanges.
    The candidate is given its parameters anew, and its calls are matched anew.
    """
    if not _may_be_wrong(correspondence, evidence):
        return with_exchanges(correspondence, evidence)
    first, flows = correspondence, evidence.flows()
    ours, theirs = _as_defined(first.reference, evidence.reference), _as_defined(first.candidate, evidence.candidate)
    guessed, told = (
        pair_parameters(ours, theirs, flows, first.fixed, guess, by_order=guess is None) for guess in (first, None)
    )
    for found in (guessed, told, with_joined_first(told, flows)):
        found = with_copies(with_shared(found, evidence.trace, evidence.free()))
        found = with_buffers_matched(found, evidence)
        found = attrs.evolve(found, wrong=first.wrong)  # the candidate has the reference's of these by now
        if correspondence is first:
            symmetric = attrs.evolve(first, symmetric=found.symmetric)
            correspondence = with_exchanges(evidence.replaced(first, symmetric), evidence)
        if found.names() not in (first.names(), correspondence.names()):
            correspondence = _better(correspondence, found, evidence)
    return correspondence


def _as_defined(units: Sequence[HeldUnit], side: Side) -> list[HeldUnit]:
    places = {path: place for place, path in enumerate(side.about.modules)}
    return sorted(units, key=lambda unit: places[unit.module.path])


def _better(known: Correspondence, other: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the one of two under which less differs, and no more is left over; the candidate holds its parameters."""
    if sum(map(len, other.left)) > sum(map(len, known.left)):
        return known
    before = differing(known, evidence)
    evidence.give(other)
    other = with_copies(with_layouts(other, evidence))
    evidence.give(other)
    other = without_mismatches(with_orders_borne_out(aligned(other, evidence), evidence), evidence)
    other = with_exchanges(other, evidence)
    if differing(other, evidence) < before:
        return other
    evidence.give(known)
    return known


def _may_be_wrong(correspondence: Correspondence, evidence: Evidence) -> bool:
    differs, wrong = differing(correspondence, evidence)
    return wrong > 0 or (differs and not evidence.is_rounding(correspondence))


def differing(correspondence: Correspondence, evidence: Evidence) -> tuple[bool, int]:
    """Return whether the free runs differ, and how many values of the forced run do."""
    forced = evidence.judged(correspondence).forced
    found = [(check.difference.rel_l2, epsilon_of(check.spot.reference.dtype)) for check in forced.checks]
    found += [(relative(one.difference, one.scale), epsilon(one.reference.dtype)) for one in forced.gradients]
    return not evidence.agrees(correspondence.axes), sum(error > ACCUMULATED(eps) for error, eps in found)
