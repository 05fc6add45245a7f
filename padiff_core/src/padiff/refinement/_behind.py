"""Tell whether what is wrong behind a match that was taken apart was its own: whether it spoils what follows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from padiff.alignment import Pair
from padiff.judging import Judge, Suspicion
from padiff.numerics import epsilon_of
from padiff.report import Verdict


def is_to_blame(pair: Pair, fresh: Sequence[Suspicion], judge: Judge, *, ended: bool) -> bool:
    """Return whether, with a pair taken apart, the difference only shows up further on: then it was the pair's.

    What the code right behind a module of a known kind makes has to differ: behind that the reference's values are fed
    again, and what differs there comes from elsewhere. Behind a block that ``ended`` wrong it is the first value that
    changes with what the block gives: a stream of residuals hands that on to whatever follows.
    """
    around = list(_seen_behind(pair, judge))
    start = pair.candidate.index
    after = [s for s in fresh if s.pair in around and (s.order >= start or s.spot is None or s.spot.what == "output")]
    known, block = pair.reference.module.kind is not None, not pair.candidate.module.operation
    if after and ended and block and not known and all(s.pair is around[0] for s in after):
        return _is_wrong_behind(pair, around[0], judge)
    behind = first_taken(pair, judge) if after and known else set()
    return bool(after) and (not behind or bool(behind & tokens(fresh)))


def _is_wrong_behind(pair: Pair, around: Pair, judge: Judge) -> bool:
    """Return whether the first value in the code around a call differs that changes with one of those that it gives."""
    wrong = {s.spot.key for s in judge.forward(rough=True) if s.spot is not None and s.verdict is Verdict.DIFFERS}
    inside = tuple(call.key for call in around.candidate.subtree() if not call.module.operation)
    plain = judge.settler.replays.of_side(around, False, {"backward": False, "shown": inside})  # once for all inside
    noise = np.random.default_rng(0)
    for at, value in () if plain is None else plain.shown.items():
        if at[:2] != (pair.key, "output") or value.dtype.kind in "biu":
            continue
        put = {at: value + noise.normal(size=value.shape).astype(value.dtype)}
        moved = judge.settler.bench.tried(around, False, backward=False, shown=(pair.key,), put=put)
        if plain is None or moved is None:
            return True
        seen = moved.observed.spots
        changed = (
            key for key, one in plain.observed.spots.items() if key in seen and not np.array_equal(one, seen[key])
        )
        if wrong & {*itertools.islice(changed, 1)}:
            return True
    return plain is None


def _seen_behind(pair: Pair, judge: Judge) -> Iterator[Pair]:
    """Yield the calls around a pair in whose code it shows what that gives: further out where they give it unfed."""
    around = judge.alignment.around(pair)
    while around is not None:
        yield around
        given = {j for j, leaf in enumerate(around.candidate.outputs) if epsilon_of(leaf.dtype)}
        around = judge.alignment.around(around) if given - {j for _, j in around.outputs} else None


def first_taken(pair: Pair, judge: Judge) -> set[int]:
    """Return the reference's counterparts of the tensors that a matched call takes first of the code behind a pair."""
    inside = {call.index for call in pair.candidate.subtree()}
    last = max(inside)
    around = list(pair.candidate.ancestors())
    before = [call for call in around[-1].subtree() if call.index <= last]
    known = {leaf.token for call in before if call.index not in inside for leaf in call.inputs}
    known |= {leaf.token for call in before if call not in around for leaf in call.outputs if call.index not in inside}
    for other in sorted(judge.alignment.pairs, key=lambda other: other.candidate.index):
        if other.candidate.index > last:
            pieces = ((other.reference.inputs[i], other.candidate.inputs[j]) for i, j in other.inputs)
            taken = {ours.token for ours, theirs in pieces if theirs.token not in known}
            if taken:
                return taken
            known.update(leaf.token for leaf in other.candidate.outputs)
    return set()


def tokens(found: Iterable[Suspicion]) -> set[int]:
    return {s.spot.reference.token for s in found if s.spot is not None}
