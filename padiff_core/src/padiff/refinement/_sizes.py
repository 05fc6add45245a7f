"""Put values in where a size is told to be wrong: what stands behind is judged as if it were right."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from padiff.judging import Judge, Suspicion
from padiff.parameters import Correspondence
from padiff.refinement._axes import aligned
from padiff.refinement._evidence import Evidence
from padiff.refinement._mismatches import without_mismatches
from padiff.report import Verdict
from padiff.trace import Key

_ROUNDS = 3
"""Runs that are led, each read in the order of axes that the one before it told."""
_Put = tuple[Key, str, tuple[int, int]]
"""A call by its key; ``inputs`` or ``outputs``; the indices of the tensors that belong together."""


def with_sizes_put(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return it with the reference's values at the places that are told to give another size.

    Behind such a place nothing could be fed, nor compared; what else is wrong there, and which further sizes are, shows
    only then.
    """
    put, meant = list[_Put](), list[_Put]()
    while new := [both for both in _told(evidence.judged(correspondence)) if both[1] not in (*put, *meant)]:
        free, tried = evidence.free(correspondence.axes), [*put, *(tie for _, tie in new)]
        after = _with_put(correspondence, tried, evidence)
        if after is None:
            break
        wrong = [tie for one, tie in new if _was_meant(one, evidence.judged(after))]
        meant += wrong
        if wrong:
            evidence.goes_back(free)
        else:
            put, correspondence = tried, after
    return correspondence


def _told(judge: Judge) -> list[tuple[Suspicion, _Put]]:
    """Return where a size comes to be another one by a fault."""
    if all(check.spot.reference.shape == check.spot.candidate.shape for check in judge.forced.checks):
        return []
    found = []
    for one in judge.forward():
        if one.spot is not None and one.arises and one.verdict is Verdict.DIFFERS:
            pair, what = judge.alignment.of_candidate(one.spot.pair.candidate), f"{one.spot.what}s"
            if pair is not None and one.ruling.rests_on("other_input", "other_output"):
                found += [(one, pair, (pair.key, what, tie)) for tie in pair.unfit(what)]
    # What a layer makes of another size may be meant: that shows once it is given the right one.
    return [(one, put) for place, (one, pair, put) in enumerate(found) if not (place and pair.misfed)]


def _was_meant(told: Suspicion, judge: Judge) -> bool:
    """Return whether the code around a call makes something else right behind it of the reference's value."""
    spot = told.spot
    if spot is None or spot.what == "output":
        return False
    behind = told.pair.name_of(spot.pair.candidate)
    return any(one.pair.key == told.pair.key and one.between and one.between[0] == behind for one in judge.forward())


def _with_put(known: Correspondence, put: Iterable[_Put], evidence: Evidence) -> Correspondence | None:
    """Return it with some values put in, and the calls as they are then; None where the candidate does not run so."""
    for _ in range(_ROUNDS):
        if not evidence.leads(_tied(known, put)):
            return None
        read, known = known.axes, _followed(known, evidence)
        if known.axes == read:
            break  # else the run that was read in other orders of axes was a free one again
    return without_mismatches(_tied(known, put), evidence)


def _tied(known: Correspondence, put: Iterable[_Put]) -> Correspondence:
    calls = known.alignment
    for key, what, tie in put:
        pair = calls.of_key(key)
        calls = calls if pair is None else calls.with_pair(pair.with_put(what, tie))
    return attrs.evolve(known, calls=calls)


def _followed(known: Correspondence, evidence: Evidence) -> Correspondence:
    """Return it with the calls matched anew, of the run that was led; those that are judged together still are."""
    before = {pair.key: pair for pair in known.alignment.pairs}
    found = aligned(known, evidence)
    pairs = [
        attrs.evolve(pair, apart=old.apart, maybe=old.maybe) if (old := before.get(pair.key)) else pair
        for pair in found.alignment.pairs
    ]
    return attrs.evolve(found, calls=attrs.evolve(found.alignment, pairs=pairs, loose=known.alignment.loose))
