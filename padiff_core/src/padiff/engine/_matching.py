"""Match the parameters of two models, and give the candidate the reference's."""

from __future__ import annotations

import numpy as np

from padiff.alignment import Resolved
from padiff.parameters import Correspondence, Specials, defined_alike, named_alike, pair_parameters, units_of, values_of
from padiff.refinement import (
    Evidence,
    with_buffers_matched,
    with_exchanges_by_value,
    with_layouts,
    with_layouts_by_value,
)

__all__ = ["matched"]


def matched(evidence: Evidence, specials: Specials, fixed: Resolved) -> Correspondence:
    """Match the parameters; the candidate holds the reference's then, where that was asked for.

    Names that agree are a guess, which whatever differs later puts in doubt. The order of definition is one that
    stands where the candidate then gives what the reference gives. Else the dataflow of both tells, and where the
    order was wrong the candidate has its own values back before.
    """
    reference, candidate = evidence.reference, evidence.candidate
    ours = units_of(reference.about, specials.on(0), values_of(reference))
    theirs = units_of(candidate.about, specials.on(1), values_of(candidate))
    known = named_alike(ours, theirs, fixed)
    if known is not None:
        known = with_buffers_matched(known, evidence)
        evidence.assign(known.matches)
        return known
    guess = defined_alike(ours, theirs, fixed) if evidence.transfer else None
    names = None if guess is None else guess.names()
    guess = guess and with_buffers_matched(guess, evidence)
    paths = [] if guess is None else dict.fromkeys(link.candidate.parameter.path for _, link in guess.links)
    before = {path: np.array(candidate.value(path)) for path in paths}
    try:
        if guess is not None:
            evidence.assign(guess.matches)
            if evidence.agrees():
                return guess
        known = pair_parameters(ours, theirs, evidence.flows(), fixed)
        if not evidence.transfer:
            known = with_layouts_by_value(with_exchanges_by_value(known, evidence), evidence)
            return with_buffers_matched(known, evidence)
    except BaseException:
        candidate.assign(before)
        raise
    if names == known.names():
        return with_buffers_matched(known, evidence)
    candidate.assign(before)
    known = with_buffers_matched(known, evidence)
    evidence.assign(known.matches)
    evidence.forget_runs()
    known = with_layouts(known, evidence)
    evidence.forget_runs()
    return known
