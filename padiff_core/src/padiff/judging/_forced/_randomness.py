"""Tell what is drawn at random, and whether both sides draw it alike.

That a call's own code took random numbers shows in the state of the generators, where the framework lets it be seen:
one seed may drop nothing of a small batch, and two may drop the same. What is drawn is judged by its distribution over
many seeds, never by one of them. A module that draws and has no counterpart tells more: where a side without it is what
the other side is, the other side draws nothing there, however the numbers fell.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Reader
from padiff.judging._forced._distributions import SEEDS, differ, flat
from padiff.judging._forced._quiet import Quiet
from padiff.judging._forced._replays import PairReplays
from padiff.numerics import RANDOM, SAME, Array, Difference, difference, epsilon
from padiff.report import SIDES, Cause, Evidence
from padiff.trace import Call, Key, contrasts, is_sampling, settings_of

_SEEDS = range(1, 9)
"""Under how many seeds a value is asked for before it is called the same under all."""
_APART = 1 << 10
"""Further on than any seed of the reference's: the candidate has its own, where both take numbers of one generator."""
assert 2 * SEEDS[-1] < _APART


@attrs.frozen
class OneSided:
    """Say what draws on one side only."""

    evidence: Evidence
    cause: Cause
    ours: bool
    """Whether that side is the reference."""
    calls: frozenset[Key] = frozenset()
    """Keys of the calls that draw and have no counterpart."""


def _only(ours: bool) -> OneSided:
    side = {"side": SIDES[not ours]}
    return OneSided(Evidence("randomness", side), Cause("randomness", side, verified=True), ours)


ONLY_REFERENCE, ONLY_CANDIDATE = _only(True), _only(False)


class Randomness:
    """Know what calls do under other seeds; each is run once for all its suspects."""

    def __init__(self, bench: Bench, replays: PairReplays) -> None:
        self._bench = bench
        self._replays = replays
        self._quiet = Quiet(bench, replays, _SEEDS)
        self._known: dict[Hashable, bool | None] = {}
        """What dropouts that are set alike have in common -> whether the two sides' are of other distributions."""
        self._one_sided: dict[Pair, OneSided | None] = {}
        self._drawn: dict[tuple[Pair, bool], bool | None] = {}
        """Pair and whether its reference -> whether the own code took random numbers."""

    def samples(self, pair: Pair, read: Reader, *, ours: bool, backward: bool = True) -> bool:
        """Return whether one side disagrees with itself under other seeds here; or draws, at least.

        What drops whole samples of a small batch, and seldom, may draw the same twice, and more often.
        """
        if is_sampling(pair.reference if ours else pair.candidate):
            return True
        took = self._took(pair, ours=ours)
        if took is None and self._quiet.side(pair, ours=ours):
            return False
        seeds = _SEEDS if took is not False else _SEEDS[:2]
        return any(self._disagrees(pair, read, ours, backward, seeds[0], seed) for seed in seeds[1:])

    def takes_numbers(self, pair: Pair) -> bool:
        """Return whether a pair's own code is known to take random numbers, on either side."""
        if any(map(is_sampling, (pair.reference, pair.candidate))):
            return True
        return any(self._took(pair, ours=ours) for ours in (True, False))

    def takes_none(self, pair: Pair, *, ours: bool = False) -> bool:
        """Return whether one side's own code is known to take no random numbers."""
        return not is_sampling(pair.reference if ours else pair.candidate) and self._took(pair, ours=ours) is False

    def _took(self, pair: Pair, *, ours: bool) -> bool | None:
        """Return whether one side's own code took random numbers; None where that is not seen."""
        if self._bench.evaluating:
            return None
        if (pair, ours) not in self._drawn:
            alignment = self._bench.alignment
            calls = (pair.reference, alignment.of_reference) if ours else (pair.candidate, alignment.of_candidate)
            self._drawn[pair, ours] = sampling(*calls)
        return self._drawn[pair, ours]

    def differ(self, pair: Pair, read: Reader, what: Hashable = None, *, backward: bool = True) -> bool | None:
        """Return whether a value is of another distribution on the candidate's side; None where that is not known.

        Of dropouts with the same settings one tells for all.
        """
        alike = pair.reference.module.kind is not None and pair.reference.leaf and pair.candidate.leaf
        like = like_calls(pair, what, backward) if alike else None
        key: Hashable = (pair.key, what, backward) if like is None else like
        if what is None or key not in self._known:
            self._known[key] = self._differ(pair, read, backward)
        return self._known[key]

    def _differ(self, pair: Pair, read: Reader, backward: bool) -> bool | None:
        for ours in (True, False):
            if self.takes_none(pair, ours=ours) and self.samples(pair, read, ours=not ours, backward=backward):
                return True  # a single value, and several
        missing = False

        def sample(ours: bool, seeds: range) -> list[Array]:
            nonlocal missing
            found = [self._seen(pair, read, ours, backward, seed + (not ours) * _APART) for seed in seeds]
            missing |= any(one is None for one in found)
            return [one for one in found if one is not None]

        first = sample(True, range(1, 2))
        different = bool(first) and differ(sample, SAME(epsilon(first[0].dtype)))
        return None if missing else different

    def _disagrees(self, pair: Pair, read: Reader, ours: bool, backward: bool, first: int, second: int) -> bool:
        a, b = (self._seen(pair, read, ours, backward, seed) for seed in (first, second))
        return a is not None and b is not None and difference(a, b).rel_l2 > RANDOM(epsilon(a.dtype))

    def difference(self, pair: Pair, read: Reader, *, backward: bool = True) -> Difference | None:
        """Return how far apart what both sides give is, at most, under a few seeds; None where that is not known."""
        found = []
        for seed in _SEEDS:
            a, b = (self._seen(pair, read, ours, backward, seed) for ours in (True, False))
            if a is None or b is None:
                return None
            found.append(difference(a, b))
        return max(found, key=lambda one: one.rel_l2)

    def under_one_seed(self, pair: Pair, read: Reader, *, backward: bool = True) -> tuple[Array, Array] | None:
        """Return what both sides give under one seed; None where that is not known."""
        a, b = (self._seen(pair, read, ours, backward, _SEEDS[0]) for ours in (True, False))
        return None if a is None or b is None else (a, b)

    def on_one_side(self, pair: Pair) -> OneSided | None:
        """Return what draws in a pair's own code on one side, where nothing but functions can draw on the other."""
        if pair not in self._one_sided:
            self._one_sided[pair] = self._find_one_side(pair)
        return self._one_sided[pair]

    def _find_one_side(self, pair: Pair) -> OneSided | None:
        if any(map(is_sampling, (pair.reference, pair.candidate))):
            return None
        ours, theirs = (list(_without_counterpart(self._bench.alignment, pair, ours=ours)) for ours in (True, False))
        if bool(ours) == bool(theirs):
            return None
        side = SIDES[not ours]
        calls = [_described(call) for call in ours or theirs]
        return OneSided(
            Evidence.of("without_dropout", side=side),
            Cause("dropout", {"side": side, "calls": calls}, verified=True),
            bool(ours),
            frozenset(call.key for call in ours or theirs),
        )

    def _seen(self, pair: Pair, read: Reader, ours: bool, backward: bool, seed: int) -> Array | None:
        # Of what takes random numbers the values will be asked for, and the gradients.
        backward = backward or (self._bench.backward and self.takes_numbers(pair))
        if seed not in _SEEDS[:2] and self.takes_none(pair, ours=ours):
            seed = _SEEDS[0]  # what takes no numbers gives the same under every seed
        found = self._replays.value(pair, read, ours, {"seed": seed, "backward": backward}, thinned=True)
        return None if found is None else flat(found)


def sampling(call: Call, matched: Callable[[Call], Pair | None]) -> bool | None:
    """Return whether the own code of a call took random numbers: also that of calls inside without counterpart.

    None where that is not seen.
    """
    inside = (child for child in call.children if matched(child) is None)
    found = [call.sampled, *(sampling(child, matched) for child in inside)]
    return True if True in found else None if None in found else False


def like_calls(pair: Pair, what: Hashable, backward: bool) -> tuple[Any, ...] | None:
    """Return all that calls which round alike have in common, or None where the two sides' settings differ."""
    if contrasts(pair.reference, pair.candidate):
        return None
    sides = (
        (call.module.class_name, repr(settings_of(call)), call.training, *(leaf.shape for leaf in call.inputs))
        for call in (pair.reference, pair.candidate)
    )
    return (what, backward, *sides)


def _without_counterpart(alignment: Alignment, pair: Pair, *, ours: bool) -> Iterator[Call]:
    """Yield the outermost calls of one side that draw, are called by a pair's own code and have no counterpart."""
    matched = alignment.of_reference if ours else alignment.of_candidate

    def inside(call: Call) -> Iterator[Call]:
        for child in call.children:
            if matched(child) is not None:
                continue
            if is_sampling(child):
                yield child
            else:
                yield from inside(child)

    return inside(pair.reference if ours else pair.candidate)


def _described(call: Call) -> dict[str, Any]:
    class_name = call.module.class_name.rpartition(".")[2]
    return {"path": call.path, "class_name": class_name, "p": settings_of(call).get("p")}
