"""Tell what calls hand to each other on one side alone: a sum so far, or what the other side makes inside of each."""

from __future__ import annotations

import copy
from collections.abc import Sequence, Set
from functools import partial
from typing import Any

import attrs
import numpy as np

from padiff.alignment import GUESSED, Alignment, Pair
from padiff.forcing import Spot
from padiff.judging import Judge, Suspicion
from padiff.numerics import ORDER
from padiff.parameters import Correspondence
from padiff.refinement._evidence import Evidence
from padiff.report import Verdict

_Place = tuple[str, str, int]
"""The classes of two calls, and which output of the candidate's."""


def without_carried(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence without outputs in which a call carries on what its counterpart is not given.

    One side adds up in the caller what the other hands from call to call (a log-determinant, a loss). What is made of
    them in the end is compared: where the code around is wrong then, and was not, they stay. Where nothing is made of
    them, they are noted.
    """
    judge = evidence.judged(correspondence)
    seen = [s for s in judge.forward(rough=True) if s.verdict is Verdict.DIFFERS]
    wrong = {(*classes_of(s.pair), s.what.index) for s in seen if s.spot is not None and s.spot.pair is s.pair}
    found: dict[_Place, list[Pair]] = {}
    for pair in correspondence.alignment.pairs:
        more = pair.unfed and not (pair.misfed or pair.unfit("inputs"))  # another shape of it is given to both
        asked = {j for _, j in pair.outputs if (*classes_of(pair), j) in wrong} if more else set()
        for j in asked and asked & _carried(pair, judge):
            found.setdefault((*classes_of(pair), j), []).append(pair)
    known = {spot_key(s) for s in seen}
    ways = [found, *({place: pairs} for place, pairs in found.items())] if len(found) > 1 else [found]
    for places in ways if found else ():
        calls = correspondence.alignment
        for (*_, index), pairs in places.items():
            for pair in pairs:
                calls = _untied(calls, pair, "outputs", {index})
        other = attrs.evolve(correspondence, calls=calls)
        again = evidence.judged(other)
        rough = again.forward(rough=True)
        if all(s.verdict is not Verdict.DIFFERS or spot_key(s) in known for s in rough):
            unseen = [
                pair.candidate.path for at, pairs in places.items() for pair in pairs if not _shows(pair, at, again)
            ]
            other = attrs.evolve(other, carried=tuple(dict.fromkeys((*other.carried, *unseen))))
            return without_carried(other, evidence)  # of the calls around, too: what goes through is fed no more
    return correspondence


def _shows(pair: Pair, at: _Place, judge: Judge) -> bool:
    """Return whether a value that is compared moves with what a call gives at a place."""
    around = judge.alignment.around(pair)
    if around is None:
        return True  # the model gives it
    place = pair.key, "output", at[2]
    run = partial(judge.settler.bench.tried, around, False, backward=False, shown=(pair.key,))
    plain = run()
    moved = None if plain is None or place not in plain.shown else run(put={place: plain.shown[place] + 1})
    if plain is None or moved is None:
        return False
    before, after = plain.observed.spots, moved.observed.spots
    return any(not np.array_equal(before[key], after[key]) for key in before.keys() & after.keys())


def without_made_inside(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence without inputs that hold on one side what the other side's calls make of them.

    Blocks are given an activation of the time here, and apply it there, each by itself. Fed with the reference's, the
    block lacks it or applies it twice; with its own it is right, or nearer to it.
    """
    seen = _differing(evidence.judged(correspondence))
    for suspicion in seen.values():
        spot = suspicion.spot
        if spot is None or spot.what != "input" or spot.pair is suspicion.pair:
            continue
        leaves = ((ours.token, theirs) for ours, theirs in spot.pair.taken if theirs.path == spot.candidate.path)
        taken = [(token, theirs.token) for token, theirs in leaves if token == spot.reference.token]
        pairs = [one for one in correspondence.alignment.pairs if _begins(one) and set(taken) & {*_tokens(one)}]
        inside = {call.key for pair in pairs for call in pair.candidate.subtree()}
        behind = {key for key, one in seen.items() if one.pair.key in inside and _takes_itself(one.spot, taken)}
        if spot.pair not in pairs or not behind:
            continue
        calls = correspondence.alignment
        for pair in pairs:
            at = {j for (_, j), both in zip(pair.inputs, _tokens(pair), strict=True) if both in taken}
            calls = _untied(calls, pair, "inputs", at)
        other = attrs.evolve(correspondence, calls=calls)
        left = _differing(evidence.judged(other))
        halved = [key for key in behind if key not in left or _size(left[key]) < ORDER(0.0) * _size(seen[key])]
        if halved and left.keys() < seen.keys():
            return without_made_inside(other, evidence)
    return correspondence


def _takes_itself(spot: Spot | None, taken: Sequence[tuple[int, int]]) -> bool:
    """Return whether a call inside takes, on one side, what the call around is given there."""
    here = [] if spot is None else [both for both in _tokens(spot.pair) if both[0] == spot.reference.token]
    return any(both[side] == one[side] for both in here for one in taken for side in (0, 1))


def _differing(judge: Judge) -> dict[tuple[Any, ...], Suspicion]:
    return {spot_key(s): s for s in judge.forward(rough=True) if s.verdict is Verdict.DIFFERS}


def _size(suspicion: Suspicion) -> float:
    return suspicion.ruling.figures.rel_l2


def _begins(pair: Pair) -> bool:
    """Return whether a pair is one of calls that call others, and that nobody mapped."""
    return bool(pair.why in GUESSED and pair.reference.children and pair.candidate.children)


def _tokens(pair: Pair) -> list[tuple[int, int]]:
    return [(ours.token, theirs.token) for ours, theirs in pair.taken]


def _untied(alignment: Alignment, pair: Pair, what: str, places: Set[int]) -> Alignment:
    """Return the alignment in which the ``inputs`` or ``outputs`` at some places are not compared."""
    carrying = copy.copy(next(one for one in alignment.pairs if one.key == pair.key))
    setattr(carrying, what, tuple((i, j) for i, j in getattr(carrying, what) if j not in places))
    return alignment.with_pair(carrying)


def _carried(pair: Pair, judge: Judge) -> set[int]:
    """Return the outputs of the candidate's call that change with what the reference's is not given."""
    run = partial(judge.settler.bench.tried, pair, False, backward=False, shown=(pair.key,))
    plain = run()
    if plain is None:
        return set()
    inputs = enumerate(pair.candidate.inputs)
    own = [(pair.key, "input", j) for j, leaf in inputs if leaf.path in pair.unfed]
    other = run(put={at: plain.shown[at] + 1 for at in own if at in plain.shown})
    if other is None:
        return set()
    made = {at: value for at, value in plain.shown.items() if at[1] == "output"}
    return {at[2] for at in made if not np.array_equal(made[at], other.shown[at])}


def classes_of(pair: Pair) -> tuple[str, str]:
    """Return the classes of a pair's modules."""
    return pair.reference.module.class_name, pair.candidate.module.class_name


def spot_key(suspicion: Suspicion) -> tuple[Any, ...]:
    """Return what names a suspicion where it is seen, under other matches too."""
    spot = suspicion.spot
    return (None,) if spot is None else (spot.what, spot.reference.token, spot.pair.key)
