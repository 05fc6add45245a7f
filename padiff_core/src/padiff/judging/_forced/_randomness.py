"""Tell what is drawn at random, and whether both sides draw it alike.

That a call's own code took random numbers shows in the state of the generators, where the framework lets it be seen:
one seed may drop nothing of a small batch, and two may drop the same. What is drawn is judged by its distribution over
many seeds, never by one of them. A module that draws and has no counterpart tells more: where a side without it is what
the other side is, the other side draws nothing there, however the numbers fell.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Replayed
from padiff.judging._forced._distributions import differ, flat
from padiff.judging._forced._question import Question
from padiff.judging._forced._replays import PairReplays
from padiff.numerics import UNSETTLED, Array, Difference, are_random, difference, epsilon
from padiff.paths import last
from padiff.trace import Call, is_sampling, settings_of

_SEEDS = range(1, 9)
"""Under how many seeds a value is asked for before it is called the same under all."""


class Randomness:
    """Know what calls do under other seeds; each is run once for all its suspects."""

    def __init__(self, bench: Bench, replays: PairReplays) -> None:
        self._bench = bench
        self._replays = replays
        self._known: dict[Hashable, bool | None] = {}
        """What dropouts that are set alike have in common -> whether the two sides' are of other distributions."""
        self._drawn: dict[tuple[Pair, bool], bool | None] = {}
        """Pair and whether its reference -> whether the own code took random numbers."""

    def samples(self, asked: Question, *, ours: bool) -> bool:
        """Return whether one side disagrees with itself under other seeds here; or draws, at least.

        What drops whole samples of a small batch, and seldom, may draw the same twice, and more often.
        """
        pair = asked.pair
        if is_sampling(pair.reference if ours else pair.candidate):
            return True
        took = self._took(pair, ours=ours)
        if took is None and self._is_quiet(pair, ours=ours):
            return False
        seeds = _SEEDS if took is not False else _SEEDS[:2]
        first = self._seen(asked, ours, seeds[0])
        others = (self._seen(asked, ours, seed) for seed in seeds[1:])
        found = first is not None and any(one is not None and are_random(first, one) for one in others)
        if found and took is False:
            self._drawn[pair, ours] = True  # where nobody sees it: in code that is compiled
        return found

    def _is_quiet(self, pair: Pair, *, ours: bool) -> bool:
        """Return whether a whole side is known to give the same under all seeds, now that a value of a pair is asked.

        One run of the whole model, each matched call fed, shows every value of its own code; so a few tell of all of
        them, where each would be asked by itself, and once more whenever a refinement changed what belongs to what. The
        whole is asked once the calls that were asked by themselves come to as much.
        """
        key = (self._bench.reference if ours else self._bench.candidate, self._bench.evaluating)
        known, spent = self._replays.shared.quiet, self._replays.shared.spent
        roots = [one for one in self._bench.alignment.pairs if one.candidate.parent is None]
        if key not in known and len(roots) == 1:
            size = [len(list((one.reference if ours else one.candidate).subtree())) for one in (pair, roots[0])]
            spent[key] += size[0]
            if spent[key] > size[1]:
                conditions = ({"seed": seed, "backward": self._bench.backward} for seed in _SEEDS)
                runs = (self._replays.of_side(roots[0], ours, one, thinned=True) for one in conditions)
                first = next(runs)
                known[key] = first is not None and all(run is not None and _agree(first, run) for run in runs)
        return known.get(key, False)

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

    def differ(self, asked: Question) -> bool | None:
        """Return whether a value is of another distribution on the candidate's side; None where that is not known.

        Of dropouts with the same settings one tells for all.
        """
        ours, theirs, what = asked.pair.reference, asked.pair.candidate, asked.what
        like = like_calls(asked) if ours.module.kind is not None and ours.leaf and theirs.leaf else None
        key: Hashable = (asked.pair.key, what, asked.backward) if like is None else like
        if what is None or key not in self._known:
            self._known[key] = self._differ(asked)
        return self._known[key]

    def _differ(self, asked: Question) -> bool | None:
        for ours in (True, False):
            if self.takes_none(asked.pair, ours=ours) and self.samples(asked, ours=not ours):
                return True  # a single value, and several
        missing = False

        def sample(ours: bool, seeds: range) -> list[Array]:
            nonlocal missing
            found = [self._seen(asked, ours, seed) for seed in seeds]
            missing |= any(one is None for one in found)
            return [one for one in found if one is not None]

        first = sample(True, range(1, 2))
        different = bool(first) and differ(sample, UNSETTLED(epsilon(first[0].dtype)))
        return None if missing else different

    def difference(self, asked: Question) -> Difference | None:
        """Return how far apart what both sides give is, at most, under a few seeds; None where that is not known."""
        found = []
        for seed in _SEEDS:
            both = self.under_one_seed(asked, seed)
            if both is None:
                return None
            found.append(difference(*both))
        return max(found, key=lambda one: one.rel_l2)

    def under_one_seed(self, asked: Question, seed: int = _SEEDS[0]) -> tuple[Array, Array] | None:
        """Return what both sides give under one seed; None where that is not known."""
        a, b = (self._seen(asked, ours, seed) for ours in (True, False))
        return None if a is None or b is None else (a, b)

    def drawing_alone(self, pair: Pair) -> tuple[Sequence[Call], Sequence[Call]]:
        """Return the calls that draw in a pair's own code on one side, where nothing but functions can on the other."""
        found = [list(_without_counterpart(self._bench.alignment, pair, ours=ours)) for ours in (True, False)]
        both = bool(found[0]) == bool(found[1]) or any(map(is_sampling, (pair.reference, pair.candidate)))
        return ((), ()) if both else (found[0], found[1])

    def _seen(self, asked: Question, ours: bool, seed: int) -> Array | None:
        # Of what takes random numbers the values will be asked for, and the gradients.
        backward = asked.backward or (self._bench.backward and self.takes_numbers(asked.pair))
        if seed not in _SEEDS[:2] and self.takes_none(asked.pair, ours=ours):
            seed = _SEEDS[0]  # what takes no numbers gives the same under every seed
        found = self._replays.value(asked, ours, {"seed": seed, "backward": backward}, thinned=True)
        return None if found is None else flat(found)


def _agree(a: Replayed, b: Replayed) -> bool:
    return all(
        ours.keys() == theirs.keys() and not any(are_random(array, theirs[key]) for key, array in ours.items())
        for ours, theirs in zip(a.tables, b.tables, strict=True)
    )


def sampling(call: Call, matched: Callable[[Call], Pair | None]) -> bool | None:
    """Return whether the own code of a call took random numbers: also that of calls inside without counterpart.

    None where that is not seen.
    """
    inside = (child for child in call.children if matched(child) is None)
    found = [call.sampled, *(sampling(child, matched) for child in inside)]
    return True if True in found else None if None in found else False


def like_calls(asked: Question) -> tuple[Any, ...] | None:
    """Return all that calls which round alike have in common, or None where the two sides' settings differ."""
    if not asked.alike:
        return None
    sides = (
        (call.module.class_name, repr(settings_of(call)), call.training, *(leaf.shape for leaf in call.inputs))
        for call in (asked.pair.reference, asked.pair.candidate)
    )
    return (asked.what, asked.backward, *sides)


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


def described(call: Call) -> dict[str, Any]:
    """Return a call that draws as a cause tells it."""
    class_name = last(call.module.class_name)
    return {"path": call.path, "class_name": class_name, "p": settings_of(call).get("p")}
