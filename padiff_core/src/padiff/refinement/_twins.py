"""Tell by training which of two networks that begin with the same weights is which: a student, and its teacher."""

from __future__ import annotations

import numpy as np

from padiff.parameters import Correspondence, UnitMatch, held_of
from padiff.refinement._evidence import Evidence
from padiff.trace import Trace


def with_twins(correspondence: Correspondence, evidence: Evidence, *, valued: bool) -> Correspondence:
    """Exchange partners where one side trains what it has a copy of, and the other side the copy.

    A script may call them in another order, which is all that told them apart. As long as none of what is copied holds
    more than one number (ones, zeros), nothing says that it is a copy. Where not all are ``valued``, sketches tell.
    """
    trained = _trained(evidence.trace), _trained(evidence.free(correspondence.axes))
    if not all(trained):
        return correspondence

    def got(match: UnitMatch) -> tuple[bool, ...]:
        sides = zip(match.units, trained, strict=True)
        return tuple(any(one.parameter.path in paths for one in unit.roles.values()) for unit, paths in sides)

    matches = [match for match in correspondence.one_to_one if match.links]
    left = [match for match in matches if got(match) == (False, True)]
    now: dict[UnitMatch, UnitMatch] = {}
    for match in matches if left else ():
        if got(match) != (True, False):
            continue
        for other in left:
            turned = UnitMatch.of(match.reference, other.candidate), UnitMatch.of(other.reference, match.candidate)
            if all(_is_known(one, evidence, valued) and evidence.holds_alike(one) for one in turned):
                now |= {match: turned[0], other: turned[1]}
                left.remove(other)
                break
    if not any(_is_told(match, evidence) for match in now.values()):
        return correspondence
    return correspondence.rematched(now)


def _is_known(match: UnitMatch, evidence: Evidence, valued: bool) -> bool:
    return valued or all(evidence.measured(link) is not None for link in match.links)


def _trained(trace: Trace) -> set[str]:
    """Return the parameters to which a gradient comes, and which an optimizer steps, where that is known."""
    stepped = trace.settings_by_path()
    return {path for path in trace.parameter_gradients if not stepped or None in stepped or path in stepped}


def _is_told(match: UnitMatch, evidence: Evidence) -> bool:
    """Return whether a match holds several numbers, by which a copy is known as one, as far as a few of them tell."""
    for link in match.links:
        known = evidence.trace.summaries.get(evidence.trace.weights.get(link.reference.parameter.path, 0))
        held = None if known is None else known.sample
        held = held_of(link, evidence.reference, evidence.candidate)[0] if held is None else held
        if held is not None and np.unique(held).size > 1:
            return True
    return False
