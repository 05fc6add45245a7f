"""Try what a call's own code gives alone, under one arrangement of what it calls or holds: the right one shows.

Where the reference draws random numbers in that code, no arrangement gives what it gave. Such a call is tried in
evaluation mode, against what the reference gives there.
"""

from __future__ import annotations

import math

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Values
from padiff.numerics import difference

__all__ = ["RIGHT", "Trial", "trial_without_chance"]

RIGHT = 1e-3
"""Relative L2 below which an arrangement is the right one: rounding is far smaller, another arrangement far off."""
_APART = 1e-3
"""Relative L2 by which two runs with other seeds are apart where something is drawn."""
_SEEDS = (1, 2)


@attrs.frozen
class Trial:
    """Know how to try one call."""

    bench: Bench
    pair: Pair
    truth: Values
    needed: frozenset[int] = frozenset()
    """Tokens of the values that must arise for a try to tell anything."""

    def error(self, alignment: Alignment | None = None) -> float:
        """Return the largest relative error of the call's own code; infinity where it does not run, or tells nothing.

        What it calls is matched as in ``alignment``, where one is given.
        """
        bench = self.bench if alignment is None else attrs.evolve(self.bench, alignment=alignment)
        try:
            alone = bench.run_candidate(self.pair, self.truth, backward=False)
        except Exception:  # what does not run so is not the way
            return math.inf
        if not self.needed <= alone.observed.values.keys():
            return math.inf
        own = (check for check in alone.checks if check.spot.owner is self.pair and not check.backward)
        return max((check.difference.rel_l2 for check in own), default=0.0)


def trial_without_chance(bench: Bench, pair: Pair) -> Trial | None:
    """Return how to try a call in whose own code the reference draws random numbers: in evaluation mode.

    None where it draws none, or does not run alone. Where a model has no modes, or draws in every mode, each error of
    the trial is large.
    """
    try:
        first, second = (bench.run_reference(pair, seed=seed, backward=False).observed.values for seed in _SEEDS)
    except Exception:  # what ran in the whole model may not run alone; then there is nothing to learn here
        return None
    both = _made(bench.alignment, pair) & first.keys() & second.keys()
    drawn = frozenset(token for token in both if difference(first[token], second[token]).rel_l2 > _APART)
    if not drawn:
        return None
    evaluating = attrs.evolve(bench, evaluating=True)
    try:
        truth = evaluating.run_reference(pair, backward=False).observed
    except Exception:  # as above: the trial's errors are large then
        return Trial(evaluating, pair, bench.trace, drawn)
    return Trial(evaluating, pair, truth, drawn)


def _made(alignment: Alignment, pair: Pair) -> set[int]:
    """Return the reference's tokens of what the own code of a call makes: it calls others with it, or returns it."""
    call = pair.reference
    below = [one for one in call.subtree() if one is not call and alignment.of_reference(one) is not None]
    made = {leaf.token for one in below for leaf in one.inputs} | {leaf.token for leaf in call.outputs}
    return made - {leaf.token for one in below for leaf in one.outputs} - {leaf.token for leaf in call.inputs}
