"""Match the calls; where images have their channels first on one side and last on the other, read them alike."""

from __future__ import annotations

import attrs

from padiff.alignment import align, turns
from padiff.parameters import Correspondence
from padiff.refinement._evidence import Evidence

__all__ = ["aligned"]


def aligned(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Match the calls of both free runs; the candidate is run once more where its axes are read in another order."""
    correspondence = _with_calls(correspondence, evidence)
    found = turns(correspondence.alignment)
    if not found:
        return correspondence
    return _with_calls(attrs.evolve(correspondence, axes=found), evidence)


def _with_calls(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    modules = [match.modules for match in correspondence.matches]
    calls = align(evidence.trace, evidence.free(correspondence.axes), modules, correspondence.fixed)
    return attrs.evolve(correspondence, calls=calls)
