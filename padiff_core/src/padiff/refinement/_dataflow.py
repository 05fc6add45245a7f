"""Match parameters anew where names or order were believed, and what the candidate does puts that in doubt.

The dataflow of both sides is then recorded, which a diff of models that agree does without.
"""

from __future__ import annotations

import attrs

from padiff.numerics import ACCUMULATED, epsilon, epsilon_of, relative
from padiff.parameters import Correspondence, pair_parameters
from padiff.refinement._axes import aligned
from padiff.refinement._evidence import Evidence
from padiff.refinement._layouts import with_layouts
from padiff.refinement._mismatches import without_mismatches
from padiff.refinement._orders import with_orders_borne_out

__all__ = ["with_dataflow"]


def with_dataflow(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return what the dataflow says, where it says otherwise and the candidate differs from the reference.

    The candidate is given its parameters anew then, and its calls are matched anew.
    """
    if evidence.knows_flows or not (evidence.transfer and _in_doubt(correspondence, evidence)):
        return correspondence
    known = correspondence
    found = pair_parameters(known.reference, known.candidate, evidence.flows(), known.fixed, guess=known)
    if found.names() == known.names():
        return evidence.replaced(known, attrs.evolve(known, symmetric=found.symmetric))
    evidence.assign(found.matches)
    evidence.forget_runs()
    found = with_layouts(found, evidence)
    evidence.forget_runs()
    return without_mismatches(with_orders_borne_out(aligned(found, evidence), evidence), evidence)


def _in_doubt(correspondence: Correspondence, evidence: Evidence) -> bool:
    if not evidence.agrees(correspondence.axes):
        return True
    forced = evidence.judged(correspondence).forced
    apart = [(check.difference.rel_l2, epsilon_of(check.spot.reference.dtype)) for check in forced.checks]
    apart += [(relative(one.difference, one.scale), epsilon(one.reference.dtype)) for one in forced.gradients]
    return any(error > ACCUMULATED(eps) for error, eps in apart)
