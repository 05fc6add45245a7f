"""Rule out chance for a whole side at once, where its framework does not let the state of its generators be seen.

One run of the whole model, each matched call fed, shows every value of its own code; so a few under other seeds tell of
all of them, where each would be asked by itself, under as many seeds, and once more whenever a refinement changed what
belongs to what. A side in which anything differs tells nothing here: then each value is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from padiff.alignment import Pair
from padiff.forcing import Bench, Replayed
from padiff.judging._forced._replays import PairReplays
from padiff.numerics import RANDOM, Array, difference, epsilon


class Quiet:
    """Know whether a whole side gives the same under all of some seeds."""

    def __init__(self, bench: Bench, replays: PairReplays, seeds: Sequence[int]) -> None:
        self._bench = bench
        self._replays = replays
        self._seeds = seeds
        self._roots = [pair for pair in bench.alignment.pairs if pair.candidate.parent is None]

    def side(self, pair: Pair, *, ours: bool) -> bool:
        """Return whether a side is known to give the same, now that a value of a pair is asked.

        The whole is asked once the calls that were asked by themselves come to as much.
        """
        key = (self._bench.reference if ours else self._bench.candidate, self._bench.evaluating)
        known, spent = self._replays.of_sides.quiet, self._replays.of_sides.spent
        if key not in known and len(self._roots) == 1:
            size = [len(list((one.reference if ours else one.candidate).subtree())) for one in (pair, self._roots[0])]
            spent[key] += size[0]
            if spent[key] > size[1]:
                known[key] = self._same(self._roots[0], ours)
        return known.get(key, False)

    def _same(self, root: Pair, ours: bool) -> bool:
        runs = (
            self._replays.of_side(root, ours, {"seed": seed, "backward": self._bench.backward}, thinned=True)
            for seed in self._seeds
        )
        first = next(runs)
        return first is not None and all(run is not None and _agree(first, run) for run in runs)


def _agree(a: Replayed, b: Replayed) -> bool:
    return all(
        ours.keys() == theirs.keys() and not any(_apart(array, theirs[key]) for key, array in ours.items())
        for ours, theirs in zip(a.tables, b.tables, strict=True)
    )


def _apart(a: Array, b: Array) -> bool:
    return difference(a, b).rel_l2 > RANDOM(epsilon(a.dtype))
