"""Keep what replays gave, the latest of them, as far as the memory budget goes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from padiff.alignment import Pair
from padiff.forcing import Bench, Observed, Replayed
from padiff.judging._forced._distributions import flat
from padiff.judging._forced._question import Question
from padiff.numerics import Array
from padiff.trace import ValueStore

K = TypeVar("K", bound=Hashable)
Kept = TypeVar("Kept")
_SHARE = 8
"""Of the memory budget, what is kept at least, however much of it the recorded values take."""


class Replays(Generic[Kept]):
    """Results of replays; what was not asked for longest goes first, and is replayed again when it is asked for."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = 0
        self._kept: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        self._numbers: dict[Hashable, int] = {}
        self.quiet: dict[Hashable, bool] = {}
        """What is known of whole sides: whether they give the same under all seeds."""
        self.spent: Counter[Hashable] = Counter()
        """How many calls of a side were replayed under all seeds to know it of theirs."""

    @classmethod
    def beside(cls, store: ValueStore) -> Replays[Kept]:
        """Return one that takes what recorded values leave of the memory budget."""
        return cls(max(store.budget - store.in_memory, store.budget // _SHARE))

    def get(self, key: Hashable, replay: Callable[[], Kept], size: Callable[[Kept], int]) -> Kept:
        """Return what is kept under a key; else what ``replay`` returns, of ``size`` bytes."""
        if key in self:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        found = replay()
        self._kept[key] = found, size(found)
        self.size += self._kept[key][1]
        while self.size > self.budget and len(self._kept) > 1:
            self.size -= self._kept.popitem(last=False)[1][1]
        return found

    def number_of(self, condition: Hashable) -> int:
        """Return what stands for a condition in keys: it may be as long as a run."""
        return self._numbers.setdefault(condition, len(self._numbers))

    def drop(self, key: Hashable) -> None:
        """Forget what is kept under a key."""
        if key in self:
            self.size -= self._kept.pop(key)[1]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept


class PairReplays:
    """Results of replays of pairs under one alignment; ``shared`` are those that tell under every one."""

    def __init__(self, bench: Bench, shared: Replays[Any] | None = None) -> None:
        self._bench = bench
        self._own = Replays[Any].beside(bench.trace.store)
        self.shared = shared
        self._of_reference: dict[Pair, int] = {}
        self.of_sides = self._own if shared is None else shared

    def get(self, pair: Pair, what: tuple[Hashable, ...], replay: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        """Return what is kept of a pair under the name of a replay; else what ``replay`` returns."""
        replays, key = self._place(pair)
        return replays.get((key, *what), replay, size)

    def of_side(
        self, pair: Pair, ours: bool, condition: Mapping[str, Any], *, thinned: bool = False
    ) -> Replayed | None:
        """Return what one side's call does by itself under a condition; None where it does not run so.

        Of what is ``thinned`` no more than what is looked at of a distribution is kept.
        """

        def replay() -> Replayed | None:
            try:
                found = self._bench.run(pair, ours, **condition)
            except Exception:  # what ran in the whole model may not run alone; then there is nothing to learn here
                return None
            return _thinned(found) if thinned else found

        replays, place = self._place(pair)
        if ours and self.shared is not None:
            if pair not in self._of_reference:
                self._of_reference[pair] = self.shared.number_of(self._bench.of_reference(pair))
            replays, place = self.shared, self._of_reference[pair]
        key = (place, ours, thinned, *sorted(condition.items()))
        known: Replayed | None = replays.get(key, replay, lambda found: 0 if found is None else found.size)
        return known

    def value(
        self, asked: Question, ours: bool, condition: Mapping[str, Any], *, thinned: bool = False
    ) -> Array | None:
        """Return a value as one side's call makes it by itself under a condition; None where it is not known."""
        run = self.of_side(asked.pair, ours, {"backward": asked.backward, **condition}, thinned=thinned)
        return None if run is None else asked.read(run, ours)

    def drop(self, pair: Pair, *what: Hashable) -> None:
        """Forget what is kept of a pair under the name of a replay."""
        replays, key = self._place(pair)
        replays.drop((key, *what))

    def has(self, pair: Pair, *what: Hashable) -> bool:
        """Return whether a replay of a pair is kept."""
        replays, key = self._place(pair)
        return (key, *what) in replays

    def _place(self, pair: Pair) -> tuple[Replays[Any], Hashable]:
        condition = None if self.shared is None else self._bench.condition(pair)
        return (self._own, pair.key) if condition is None or self.shared is None else (self.shared, condition)


def _thinned(run: Replayed) -> Replayed:
    """Return what a call did by itself, with no more of it than is looked at; what is laid out is left whole."""

    def thin(arrays: Mapping[K, Array]) -> dict[K, Array]:
        return {key: flat(array) for key, array in arrays.items()}

    seen = run.observed
    observed = Observed(thin(seen.values), thin(seen.spots), thin(seen.gradients))
    return Replayed(observed, [], run.gradients, run.buffers)
