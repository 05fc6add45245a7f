"""Settle by forcing which of several like modules is which, where names do not tell and only order spoke.

Two same-shaped branches may be called in another order in a port. The weights then went to the wrong branches, and
what the parent's code makes of them differs. Exchanged, it does not: no other run of the model is needed to see that,
since forcing alone decides what the branches give.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import attrs

from padiff.align import Alignment, Pair
from padiff.alone import Bench
from padiff.judge import Judge, Suspicion
from padiff.names import agreement
from padiff.report import Verdict
from padiff.weights import UnitMatch, link_roles

__all__ = ["exchanged"]

_MOST = 20
"""Tries for one call: what attention needs (two or three of four projections, in every way), and some more."""
_TOLD = 3
"""How far names must agree to be believed."""
_RIGHT = 1e-3
_SURE = 1e-6


def exchanged(matches: Sequence[UnitMatch], suspicions: Sequence[Suspicion], judge: Judge) -> list[UnitMatch] | None:
    """Return the matches with partners exchanged where that makes differing code right, or None."""
    owners = dict.fromkeys(s.pair for s in suspicions if s.verdict is Verdict.DIFFERS and s.pair.candidate.children)
    bench = judge.settler.bench
    result = list(matches)
    changed = False
    for owner in owners:
        best, least = None, _RIGHT
        for cycle in itertools.islice(_cycles(result, owner, judge, bench.alignment), _MOST):
            error = _error(attrs.evolve(bench, alignment=_turned(bench.alignment, cycle)), owner)
            if error < least:
                # Query and key exchanged may be nearly right: where attention is nearly even.
                best, least = cycle, error
            if error < _SURE:
                break
        if best is not None:
            partners = {id(match): following for match, following in _steps(best)}
            result = [_partner(match, partners.get(id(match))) for match in result]
            changed = True
    return result if changed else None


def _cycles(
    matches: Sequence[UnitMatch], owner: Pair, judge: Judge, alignment: Alignment
) -> Iterator[tuple[UnitMatch, ...]]:
    """Yield two, then three matched units directly below a call of which each may have the next one's partner.

    Their names do not tell, and the partner fits.
    """
    below = [
        match
        for match in matches
        if any(judge.around(pair) is owner for pair in alignment.using(match.candidate.module))
    ]
    sure = agreement([m.reference.path for m in below], [m.candidate.path for m in below])
    untold = [m for i, m in enumerate(below) if sure[i, i] < _TOLD and m.reference.path != m.candidate.path]
    for length in (2, 3):
        for first, *others in itertools.combinations(untold, length):
            for order in itertools.permutations(others):
                cycle = (first, *order)
                if all(link_roles(a.reference, b.candidate)[0] for a, b in _steps(cycle)):
                    yield cycle


def _steps(cycle: tuple[UnitMatch, ...]) -> Iterator[tuple[UnitMatch, UnitMatch]]:
    """Yield each match of a cycle with the one whose partner it takes."""
    return zip(cycle, (*cycle[1:], cycle[0]), strict=True)


def _turned(alignment: Alignment, cycle: tuple[UnitMatch, ...]) -> Alignment:
    calls = {id(match): alignment.using(match.candidate.module) for match in cycle}
    gone = {id(pair) for pairs in calls.values() for pair in pairs}
    crossed = [
        Pair(ours.reference, theirs.candidate, ours.why)
        for match, following in _steps(cycle)
        for ours, theirs in zip(calls[id(match)], calls[id(following)], strict=False)
    ]
    kept = [pair for pair in alignment.pairs if id(pair) not in gone]
    pairs = sorted([*kept, *crossed], key=lambda pair: pair.candidate.index)
    return Alignment(pairs, alignment.left_reference, alignment.left_candidate, alignment.loose)


def _error(bench: Bench, owner: Pair) -> float:
    """Return the largest relative error of a call's own code alone; infinity where it does not run."""
    try:
        alone = bench.run_candidate(owner, bench.trace, backward=False)
    except Exception:  # what does not run so is not the way
        return math.inf
    own = (check for check in alone.checks if check.spot.owner is owner and not check.backward)
    return max((check.difference.rel_l2 for check in own), default=0.0)


def _partner(match: UnitMatch, following: UnitMatch | None) -> UnitMatch:
    if following is None:
        return match
    return UnitMatch(match.reference, following.candidate, link_roles(match.reference, following.candidate)[1])
