"""Tell by training which of two networks that begin with the same weights is which: a student, and its teacher."""

from __future__ import annotations

import numpy as np

from padiff.parameters import Correspondence, UnitMatch, held_of
from padiff.refinement._evidence import Evidence
from padiff.trace import Trace


def with_twins(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Exchange partners where one side trains what it has a copy of, and the other side the copy.

    A script may call them in another order, which is all that told them apart. As long as none of what is copied holds
    more than one number (ones, zeros), nothing says that it is a copy.
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
            if all(map(evidence.holds_alike, turned)):
                now |= {match: turned[0], other: turned[1]}
                left.remove(other)
                break
    if not any(_is_told(match, evidence) for match in now.values()):
        return correspondence
    return correspondence.rematched(now)


def _trained(trace: Trace) -> set[str]:
    """Return the parameters to which a gradient comes, and which an optimizer steps, where that is known."""
    stepped = trace.settings_by_path()
    return {path for path in trace.parameter_gradients if not stepped or None in stepped or path in stepped}


def _is_told(match: UnitMatch, evidence: Evidence) -> bool:
    """Return whether a match holds several numbers, by which a copy is known as one."""
    held = (held_of(link, evidence.reference, evidence.candidate)[0] for link in match.links)
    return any(one is not None and np.unique(one).size > 1 for one in held)
