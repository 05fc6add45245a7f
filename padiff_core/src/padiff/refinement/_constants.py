"""Try whether constants of the candidate are wrong: with the reference's, less differs then.

A constant may be held in another form than the reference's, or not be used at all; then its values tell nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from padiff.numerics import Array
from padiff.parameters import Correspondence, Link, UnitMatch, held_of, is_alike, transfer
from padiff.refinement._axes import aligned
from padiff.refinement._differing import differing
from padiff.refinement._evidence import Evidence

_MOST = 8
"""Tries: constants that hold the same on each side are tried together."""
_ALIKE = (False, 0)


def with_constants(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with the constants that are wrong; the candidate has the reference's from then on."""
    groups = _differing(correspondence.constants, evidence)
    least = differing(correspondence, evidence) if groups else _ALIKE
    for group in groups[:_MOST]:
        if least == _ALIKE:
            break
        own = {x.candidate.parameter.path: evidence.candidate.value(x.candidate.parameter.path) for x in _links(group)}
        own = {path: np.array(values) for path, values in own.items()}
        seen = evidence.free(correspondence.axes)
        transfer(group, evidence.reference, evidence.candidate)
        evidence.forget_runs()
        tried = attrs.evolve(correspondence, wrong=[*correspondence.wrong, *group])
        try:
            tried = aligned(tried, evidence)
            now = differing(tried, evidence)
        except BaseException:
            evidence.candidate.assign(own)
            raise
        if now < least:
            correspondence, least = tried, now
            evidence.own.update(own)
            evidence.seen = evidence.seen or seen
        else:
            evidence.candidate.assign(own)
            evidence.forget_runs()
    return correspondence


def _links(group: Sequence[UnitMatch]) -> Iterator[Link]:
    return (link for match in group for link in match.links)


def _differing(constants: Sequence[UnitMatch], evidence: Evidence) -> list[list[UnitMatch]]:
    """Return the constants that differ, those together that hold the same on each side: one in each block."""
    groups: list[tuple[Array, Array, list[UnitMatch]]] = []
    for match in constants:
        (link,) = match.links
        a, b = held_of(link, evidence.reference, evidence.candidate)
        assert a is not None
        if is_alike(a, b):
            continue
        like = next((found for x, y, found in groups if np.array_equal(x, a) and np.array_equal(y, b)), None)
        if like is None:
            groups.append((a, b, like := []))
        like.append(match)
    return [found for _, _, found in groups]
