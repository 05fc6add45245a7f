"""Tell what is drawn at random: by the reference, whose values are then one of many, or by one side alone.

Two runs of a call with other seeds tell, but for what draws seldom: the few samples of a batch that stochastic depth
drops. A module that draws and has no counterpart tells more: where a side without it is what the other side is, the
other side draws nothing there, however the numbers fell.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Reader, Replayed
from padiff.judging._replays import PairReplays
from padiff.kinds import CATALOGUE
from padiff.numerics import RANDOM, difference, epsilon
from padiff.report import Cause, Evidence
from padiff.trace import Call, Key, settings_of

__all__ = ["ONLY_CANDIDATE", "ONLY_REFERENCE", "Chance", "Lone"]

_SEEDS = range(1, 9)
"""Two of them tell whether a side draws; all, that one always does and the other never: no chance of one in 65000."""
_SIDES = ("candidate", "reference")


@attrs.frozen
class Lone:
    """Say what draws on one side only."""

    evidence: Evidence
    cause: Cause
    ours: bool
    """Whether that side is the reference."""
    calls: frozenset[Key] = frozenset()
    """Keys of the calls that draw and have no counterpart."""


def _only(ours: bool) -> Lone:
    side = {"side": _SIDES[ours]}
    return Lone(Evidence("randomness", side), Cause("randomness", side, verified=True), ours)


ONLY_REFERENCE, ONLY_CANDIDATE = _only(True), _only(False)


class Chance:
    """Know what calls do under other seeds; each is run once for all its suspects."""

    def __init__(self, bench: Bench, replays: PairReplays) -> None:
        self._bench = bench
        self._replays = replays

    def draws(self, pair: Pair, read: Reader, *, ours: bool, backward: bool = True) -> bool:
        """Return whether one side, run twice with other seeds, disagrees with itself here; or draws, at least.

        What drops whole samples of a small batch, and seldom, may draw the same twice.
        """
        if _is_drawing(pair.reference if ours else pair.candidate):
            return True
        return self._apart(pair, read, ours, backward, *_SEEDS[:2])

    def only(self, pair: Pair, read: Reader, *, ours: bool, backward: bool = True) -> bool:
        """Return whether one side gives something else under every seed, and the other always the same."""
        if any(map(_is_drawing, (pair.reference, pair.candidate))):
            return False
        following = list(itertools.pairwise(_SEEDS))
        # The first two seeds of both sides tell nearly always; the others are run where these do not.
        return all(
            self._apart(pair, read, ours, backward, *two) and not self._apart(pair, read, not ours, backward, *two)
            for two in following
        )

    def lone(self, pair: Pair) -> Lone | None:
        """Return what draws in a pair's own code on one side, where nothing but functions can draw on the other."""
        if any(map(_is_drawing, (pair.reference, pair.candidate))):
            return None
        ours, theirs = (list(_without_counterpart(self._bench.alignment, pair, ours=ours)) for ours in (True, False))
        if bool(ours) == bool(theirs):
            return None
        side = _SIDES[bool(ours)]
        calls = [_described(call) for call in ours or theirs]
        return Lone(
            Evidence.of("without_dropout", side=side),
            Cause("dropout", {"side": side, "calls": calls}, verified=True),
            bool(ours),
            frozenset(call.key for call in ours or theirs),
        )

    def _apart(self, pair: Pair, read: Reader, ours: bool, backward: bool, first: int, second: int) -> bool:
        runs = [self._run(pair, ours, backward, seed) for seed in (first, second)]
        a, b = (None if run is None else read(run, ours) for run in runs)
        return a is not None and b is not None and difference(a, b).rel_l2 > RANDOM(epsilon(a.dtype))

    def _run(self, pair: Pair, ours: bool, backward: bool, seed: int) -> Replayed | None:
        found: Replayed | None = self._replays.get(
            pair,
            ("seed", ours, backward, seed),
            lambda: self._alone(pair, ours, backward, seed),
            lambda found: 0 if found is None else found.size,
        )
        return found

    def _alone(self, pair: Pair, ours: bool, backward: bool, seed: int) -> Replayed | None:
        try:
            if ours:
                return self._bench.run_reference(pair, seed=seed, backward=backward)
            return self._bench.run_candidate(pair, None, seed=seed, backward=backward)
        except Exception:  # what ran in the whole model may not run alone; then there is nothing to learn here
            return None


def _is_drawing(call: Call) -> bool:
    """Return whether a call is of a module that draws numbers, and is at work."""
    module = call.module
    return bool(module.kind and CATALOGUE[module.kind].stochastic and call.training and settings_of(call).get("p", 0.0))


def _without_counterpart(alignment: Alignment, pair: Pair, *, ours: bool) -> Iterator[Call]:
    """Yield the outermost calls of one side that draw, are called by a pair's own code and have no counterpart."""
    matched = alignment.of_reference if ours else alignment.of_candidate

    def inside(call: Call) -> Iterator[Call]:
        for child in call.children:
            if matched(child) is not None:
                continue
            if _is_drawing(child):
                yield child
            else:
                yield from inside(child)

    return inside(pair.reference if ours else pair.candidate)


def _described(call: Call) -> dict[str, Any]:
    class_name = call.module.class_name.rpartition(".")[2]
    return {"path": call.path, "class_name": class_name, "p": settings_of(call).get("p")}
