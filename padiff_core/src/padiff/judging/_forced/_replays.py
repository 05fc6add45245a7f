"""Keep what replays gave, the latest of them, as far as the memory budget goes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from padiff.alignment import Pair
from padiff.forcing import Bench, Observed, Replayed
from padiff.judging._forced._distributions import flat
from padiff.judging._forced._question import Question
from padiff.judging._suspicion import Refusal, refusal
from padiff.numerics import Array
from padiff.recording import warn_if_internal
from padiff.report import SIDES
from padiff.trace import ValueStore

K = TypeVar("K", bound=Hashable)
Kept = TypeVar("Kept")
Tried = Replayed | Refusal
"""What a call did by itself, or why it does not run so."""
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

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept


class PairReplays:
    """Results of replays of pairs under one alignment; ``shared`` are those that tell under every one."""

    def __init__(self, bench: Bench, shared: Replays[Any] | None) -> None:
        self._bench = bench
        self._own, further = (Replays[Any].beside(bench.trace.store) for _ in range(2))
        self.shared = further if shared is None else shared
        self._of_reference: dict[Pair, int] = {}

    def of_side(
        self, pair: Pair, ours: bool, condition: Mapping[str, Any], *, thinned: bool = False
    ) -> Replayed | None:
        """Return what one side's call does by itself under a condition; None where it does not run so.

        Of what is ``thinned`` no more than what is looked at of a distribution is kept.
        """
        found = self._tried(pair, ours, condition, thinned=thinned)
        return found if isinstance(found, Replayed) else None

    def of_both(self, pair: Pair, condition: Mapping[str, Any]) -> tuple[Tried, Tried]:
        """Return what both sides do, the candidate's compared with the reference's; or why one refuses."""
        ours = self._tried(pair, True, condition)
        truth = ours.observed if isinstance(ours, Replayed) else None
        return ours, self._tried(pair, False, {**condition, "truth": truth})

    def _tried(self, pair: Pair, ours: bool, condition: Mapping[str, Any], *, thinned: bool = False) -> Tried:
        def replay() -> Tried:
            try:
                found = self._bench.run(pair, ours, **condition)
            except Exception as error:  # what ran in the whole model may not run alone, or lacks a kernel in float64
                warn_if_internal(error)
                return refusal(SIDES[not ours], error)
            return _thinned(found) if thinned else found

        replays, place = self._place(pair)
        if ours:
            if pair not in self._of_reference:
                self._of_reference[pair] = self.shared.number_of(self._bench.of_reference(pair))
            replays, place = self.shared, self._of_reference[pair]
        named = {**condition, "truth": condition.get("truth") is not None}
        key, further = ((place, ours, thinned, *sorted({**named, **more}.items())) for more in ({}, {"backward": True}))
        key = further if further in replays else key  # what ran backward, too, tells all that it did forward
        known: Tried = replays.get(key, replay, lambda run: run.size if isinstance(run, Replayed) else 0)
        return known

    def value(
        self, asked: Question, ours: bool, condition: Mapping[str, Any], *, thinned: bool = False
    ) -> Array | None:
        """Return a value as one side's call makes it by itself under a condition; None where it is not known."""
        run = self.of_side(asked.pair, ours, {"backward": asked.backward, **condition}, thinned=thinned)
        return None if run is None else asked.read(run, ours)

    def _place(self, pair: Pair) -> tuple[Replays[Any], Hashable]:
        condition = self._bench.condition(pair)
        return (self._own, pair.key) if condition is None else (self.shared, condition)


def _thinned(run: Replayed) -> Replayed:
    """Return what a call did by itself, with no more of it than is looked at; what is laid out is left whole."""

    def thin(arrays: Mapping[K, Array]) -> dict[K, Array]:
        return {key: flat(array) for key, array in arrays.items()}

    seen = run.observed
    observed = Observed(thin(seen.values), thin(seen.spots), thin(seen.gradients))
    return Replayed(observed, [], run.gradients, run.buffers)
