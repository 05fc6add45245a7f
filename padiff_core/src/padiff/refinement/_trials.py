"""Try what a call's own code gives alone, under one arrangement of what it calls or holds: the right one shows.

Where that code draws random numbers, on either side, no arrangement gives what the reference gave. Such a call is tried
in evaluation mode, against what the reference gives there.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Values
from padiff.judging import sampling
from padiff.numerics import EXACT, SAME, are_random, epsilon_of
from padiff.trace import Key

RIGHT = 1.0
"""An error up to which an arrangement is the right one, in units of `SAME`: another arrangement is far off."""
_SEEDS = (1, 2)
WIDE = "float64"
"""The type in which what natively seems right is tried once more."""


@attrs.frozen
class Trial:
    """Know how to try one call."""

    bench: Bench
    pair: Pair
    truth: Values
    needed: frozenset[int] = frozenset()
    """Tokens of the values that must arise for a try to tell anything."""
    beside: frozenset[Key] = frozenset()
    """Calls inside of it that are handed what is tried, of whose own code the errors count too."""
    dtype: str | None = None
    """The type in which it is run; None for its own."""

    def error(self, alignment: Alignment | None = None) -> float:
        """Return the largest error of the call's own code, in units of `SAME`; infinity where it tells nothing.

        That is also where it does not run. What it calls is matched as in ``alignment``, where one is given.
        """
        return max(self.errors(alignment).values(), default=0.0)

    def errors(self, alignment: Alignment | None = None) -> dict[Hashable, float]:
        """Return the error of each value that the call's own code makes, as `error` does the largest.

        It is 0 where no other arrangement can be more right. What has another shape on both sides says nothing of any.
        """
        bench = self.bench if alignment is None else attrs.evolve(self.bench, alignment=alignment)
        alone = bench.tried(self.pair, False, self.truth, dtype=self.dtype, backward=False)
        if alone is None or not self.needed <= alone.observed.values.keys():
            return {None: math.inf}
        owners = {self.pair.key, *self.beside}
        checks = ((check, check.spot) for check in alone.checks if not check.backward)
        alike = ((check, spot.owner) for check, spot in checks if spot.reference.shape == spot.candidate.shape)
        own = [check for check, owner in alike if owner is not None and owner.key in owners]
        found: dict[Hashable, float] = {}
        for x in own:  # by what it stands for: where that is seen first hangs on how calls are matched
            error = _error(x.difference.rel_l2, self._epsilon(x.spot.reference.dtype))
            found[x.spot.reference.token] = max(error, found.get(x.spot.reference.token, 0.0))
        return found

    @property
    def far(self) -> float:
        """Return how large the error of zeros is, in the finest type of what the call takes and gives."""
        leaves = (*self.pair.reference.inputs, *self.pair.reference.outputs)
        return 1 / min((SAME(eps) for one in leaves if (eps := self._epsilon(one.dtype))), default=1.0)

    def _epsilon(self, dtype: str) -> float:
        return epsilon_of(self.dtype if self.dtype and epsilon_of(dtype) else dtype)


def _error(apart: float, eps: float) -> float:
    return 0.0 if apart <= EXACT(eps) else apart / SAME(eps)


def in_float64(trial: Trial) -> Trial | None:
    """Return how to try a call in float64, against what the reference gives there; None where it gives nothing."""
    alone = trial.bench.tried(trial.pair, True, dtype=WIDE, backward=False)
    return None if alone is None else attrs.evolve(trial, truth=alone.observed, dtype=WIDE)


def trial_without_randomness(bench: Bench, pair: Pair) -> Trial | None:
    """Return how to try a call whose own code draws random numbers, on either side: in evaluation mode.

    None where it draws none, or does not run alone. Where a model has no modes, or draws in every mode, each error of
    the trial is large.
    """
    runs = (bench.tried(pair, True, seed=seed, backward=False) for seed in _SEEDS)
    made = [run.observed.values for run in runs if run is not None]
    if len(made) < 2:
        return None
    first, second = made
    both = _made(bench.alignment, pair) & first.keys() & second.keys()
    drawn = frozenset(token for token in both if are_random(first[token], second[token]))
    if not drawn and not is_drawn(bench.alignment, pair):
        return None
    # Two seeds may make the same of what is drawn seldom, or of a small batch.
    drawn = drawn or frozenset(both)
    evaluating = attrs.evolve(bench, evaluating=True)
    alone = evaluating.tried(pair, True, backward=False)  # else the trial's errors are large
    return Trial(evaluating, pair, bench.trace if alone is None else alone.observed, drawn)


def is_drawn(alignment: Alignment, pair: Pair) -> bool:
    """Return whether the own code of a call is known to draw random numbers, on either side."""
    return bool(sampling(pair.reference, alignment.of_reference) or sampling(pair.candidate, alignment.of_candidate))


def _made(alignment: Alignment, pair: Pair) -> set[int]:
    """Return the reference's tokens of what the own code of a call makes: it calls others with it, or returns it."""
    call = pair.reference
    below = [one for one in call.subtree() if one is not call and alignment.of_reference(one) is not None]
    made = {leaf.token for one in below for leaf in one.inputs} | {leaf.token for leaf in call.outputs}
    return made - {leaf.token for one in below for leaf in one.outputs} - {leaf.token for leaf in call.inputs}
