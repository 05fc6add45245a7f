"""Take the calls of a module in their order where what they took or gave says otherwise, and less differs so.

Branches may be called in another order, and values tell which is which. The steps of a loop come near to each other as
well: behind a fault a step may give nearly what another one gives on the other side.
"""

from __future__ import annotations

import itertools

import attrs

from padiff.alignment import Alignment
from padiff.grouping import grouped
from padiff.parameters import Correspondence
from padiff.refinement._axes import aligned
from padiff.refinement._differing import differing
from padiff.refinement._evidence import Evidence


def with_calls_in_order(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with the calls in their order, where fewer values differ so; one more forced run."""
    if _is_in_order(correspondence.alignment) or not (found := differing(correspondence, evidence))[1]:
        return correspondence
    other = aligned(attrs.evolve(correspondence, by_order=True), evidence)
    return other if differing(other, evidence) < found else correspondence


def _is_in_order(calls: Alignment) -> bool:
    modules = grouped(calls.pairs, lambda pair: (pair.reference.path, pair.candidate.path)).values()
    steps = (itertools.pairwise(pair.reference.index for pair in pairs) for pairs in modules)
    return all(before < behind for both in steps for before, behind in both)
