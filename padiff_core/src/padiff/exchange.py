"""Settle by forcing which of several like modules is which, where names do not tell and only order spoke.

Two same-shaped branches may be called in another order in a port. The weights then went to the wrong branches, and
what the parent's code makes of them differs. Exchanged, it does not: no other run of the model is needed to see that,
since forcing alone decides what the branches give.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs

from padiff.align import Alignment, Pair
from padiff.alone import Bench
from padiff.judge import Judge, Suspicion
from padiff.names import agreement
from padiff.report import Verdict
from padiff.weights import UnitMatch, link_roles

__all__ = ["exchanged"]

_MOST = 12
_RIGHT = 1e-3


def exchanged(matches: Sequence[UnitMatch], suspicions: Sequence[Suspicion], judge: Judge) -> list[UnitMatch] | None:
    """Return the matches with partners exchanged where that makes differing code right, or None."""
    owners = dict.fromkeys(s.pair for s in suspicions if s.verdict is Verdict.DIFFERS and s.pair.candidate.children)
    bench = judge.settler.bench
    result = list(matches)
    changed = False
    for owner in owners:
        for a, b in itertools.islice(_interchangeable(result, owner, judge, bench.alignment), _MOST):
            swapped = _swap(bench.alignment, a, b)
            if _is_right(attrs.evolve(bench, alignment=swapped), owner):
                result = [_partner(match, a, b) for match in result]
                changed = True
                break
    return result if changed else None


def _interchangeable(
    matches: Sequence[UnitMatch], owner: Pair, judge: Judge, alignment: Alignment
) -> Iterator[tuple[UnitMatch, UnitMatch]]:
    """Yield pairs of matched units directly below a call that fit crosswise and whose names do not tell."""
    below = [
        match
        for match in matches
        if any(judge.around(pair) is owner for pair in alignment.using(match.candidate.module))
    ]
    sure = agreement([m.reference.path for m in below], [m.candidate.path for m in below])
    for i, j in itertools.combinations(range(len(below)), 2):
        a, b = below[i], below[j]
        told = max(sure[i, i], sure[j, j]) >= 3 or any(m.reference.path == m.candidate.path for m in (a, b))
        if not told and link_roles(a.reference, b.candidate)[0] and link_roles(b.reference, a.candidate)[0]:
            yield a, b


def _swap(alignment: Alignment, a: UnitMatch, b: UnitMatch) -> Alignment:
    ours, theirs = alignment.using(a.candidate.module), alignment.using(b.candidate.module)
    gone = {id(pair) for pair in (*ours, *theirs)}
    crossed = [
        Pair(reference, candidate, first.why)
        for first, second in zip(ours, theirs, strict=False)
        for reference, candidate in (
            (second.reference, first.candidate),
            (first.reference, second.candidate),
        )
    ]
    kept = [pair for pair in alignment.pairs if id(pair) not in gone]
    pairs = sorted([*kept, *crossed], key=lambda pair: pair.candidate.index)
    return Alignment(pairs, alignment.left_reference, alignment.left_candidate)


def _is_right(bench: Bench, owner: Pair) -> bool:
    try:
        alone = bench.run_candidate(owner, bench.trace)
    except Exception:  # what does not run so is not the way
        return False
    own = [check for check in alone.checks if check.spot.owner is owner and not check.backward]
    return all(check.difference.rel_l2 < _RIGHT for check in own)


def _partner(match: UnitMatch, a: UnitMatch, b: UnitMatch) -> UnitMatch:
    other = {id(a): b, id(b): a}.get(id(match))
    if other is None:
        return match
    return UnitMatch(match.reference, other.candidate, link_roles(match.reference, other.candidate)[1])
