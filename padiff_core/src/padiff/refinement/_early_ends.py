"""Take blocks apart that end earlier than their matches: the code around them applies what those end with."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import attrs
import numpy as np

from padiff.alignment import GUESSED, Pair
from padiff.parameters import Correspondence
from padiff.refinement._carried import classes_of, spot_key
from padiff.refinement._evidence import Evidence
from padiff.report import Verdict
from padiff.trace import Trace

_Step = tuple[int, Pair, int]
"""Which output of a candidate's call, and the pair whose candidate is given, at which place, what is made of it."""


def without_early_ends(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence without blocks that end wrong because the candidate's end earlier than their matches.

    The reference hands on what its block gives as it is. Where the candidate makes another value of what its own
    gives, and leaves the reference's as that is, it has yet to apply what the reference's block has applied inside: a
    rectifier changes nothing that is rectified. That is so whatever else is wrong inside. Where a block ends is for its
    class to say: behind the last one no call may take what it gives.
    """
    wrong = [s for s in evidence.judged(correspondence).forward(rough=True) if s.verdict is Verdict.DIFFERS]
    ended = [s.pair for s in wrong if s.spot is not None and s.spot.what == "output" and s.spot.pair is s.pair]
    blocks = [pair for pair in dict.fromkeys(ended) if _is_block(pair)]
    seen = {spot_key(s) for s in wrong}
    steps = {pair.key: list(_steps(pair, correspondence, seen)) for pair in blocks}
    if not any(steps.values()):
        return correspondence
    with evidence.whole(correspondence.axes) as whole:
        early = {classes_of(pair) for pair in blocks if any(_is_changed(pair, step, whole) for step in steps[pair.key])}
    apart = correspondence.alignment.without([pair for pair in blocks if classes_of(pair) in early])
    return evidence.keep(attrs.evolve(correspondence, calls=apart)) if early else correspondence


def _is_block(pair: Pair) -> bool:
    calls = pair.reference, pair.candidate
    return pair.why in GUESSED and all(call.children and call.parent is not None for call in calls)


def _steps(pair: Pair, correspondence: Correspondence, seen: Collection[tuple[Any, ...]]) -> Iterator[_Step]:
    """Yield where the candidate hands on another tensor than a call gives: the reference's, if that is put in."""
    own = {leaf.token for call in pair.candidate.subtree() for leaf in call.outputs}
    for i, j in pair.outputs:
        token = pair.reference.outputs[i].token
        for other in correspondence.alignment.pairs:
            for k, m in other.inputs:
                handed = other.reference.inputs[k].token == token and other.candidate.inputs[m].token not in own
                if handed and ("input", token, other.key) not in seen:
                    yield j, other, m


def _is_changed(pair: Pair, step: _Step, whole: Trace) -> bool:
    """Return whether what is handed on has other elements than what the call gave, in whatever order they lie."""
    index, other, place = step
    calls = {call.key: call for call in whole.calls}
    if pair.key not in calls or other.key not in calls:
        return False
    outputs, inputs = calls[pair.key].outputs, calls[other.key].inputs
    if index >= len(outputs) or place >= len(inputs):
        return False
    made, handed = whole.value(outputs[index]), whole.value(inputs[place])
    if made is None or handed is None or made.size != handed.size:
        return False
    return not np.array_equal(np.sort(made, axis=None), np.sort(handed, axis=None), equal_nan=True)
