"""Settle suspects: is a difference a fault, rounding, another precision, or chance?

The evidence, strongest first: both sides alone in float64; the reference twice, where it disagrees with itself;
one side alone in float64, where the other has no kernel for it, as the truth for both; both alone as they are, against
the format's machine epsilon.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench, Reader, Replayed, is_recorded
from padiff.judging._distributions import SEEDS
from padiff.judging._narrow import Narrow
from padiff.judging._randomness import ONLY_CANDIDATE, ONLY_REFERENCE, Chance, Lone, like_calls
from padiff.judging._replays import PairReplays, Replays
from padiff.judging._ruling import DOES_NOT_ARISE, Refusal, Ruling, reason, refusal
from padiff.numerics import (
    ACCUMULATED,
    CONSTANT,
    FLOORS,
    NEGLIGIBLE,
    ROUNDING,
    SAME,
    TOGETHER,
    UNSETTLED,
    Array,
    Difference,
    beside_masks,
    difference,
    epsilon,
    epsilon_of,
    is_coarse,
    is_suspect,
    relative,
)
from padiff.report import Evidence, Figures, Verdict
from padiff.trace import Key, contrasts

_TOGETHER_AT_SIGHT = Difference(True, 0.0, 0.0, float("nan"), True, True, False, 0)
"""Stands for what a forced run showed, where none was made."""


@attrs.define(eq=False)
class _Runs:
    """What both sides of a pair did by themselves."""

    reference: Replayed | None = None
    candidate: Replayed | None = None
    refused: Refusal | None = None

    @property
    def size(self) -> int:
        """Return how many bytes their arrays take."""
        return sum(one.size for one in (self.reference, self.candidate) if one is not None)


class Settler:
    """Settle suspects by running calls alone; each call is run once for all its suspects."""

    def __init__(self, bench: Bench, replays: Replays[Any] | None = None) -> None:
        self.bench = bench
        self._replays = PairReplays(bench, replays)
        self.chance = Chance(bench, self._replays)
        self._narrow = Narrow(bench, self.runs, self._replays)
        self._idle: dict[tuple[frozenset[Key], frozenset[Key]], Settler] = {}
        """Calls that do nothing -> what settles suspects without them."""
        self._still: Settler | None = None
        """What settles suspects in evaluation mode."""
        self._floors: dict[tuple[Any, ...], tuple[float, str]] = {}
        """What calls that round alike have in common -> the noise floor of one of them, and its path."""

    def settle(
        self,
        pair: Pair,
        read: Reader,
        native: Difference,
        truth: Array | None,
        *,
        scale: float = 0.0,
        backward: bool = True,
        what: Hashable = None,
    ) -> Ruling:
        """Rule on one value of a call: ``read`` takes it from what the call did alone.

        ``native`` is the local difference seen in the forced run, ``truth`` the reference's recorded value, ``scale``
        as in `is_suspect`; ``backward`` says whether the value arises in the backward pass, ``what`` names it. Calls
        of one class with the same settings and shapes round alike: what one of them shows in float64 tells for all, as
        far as its noise floor goes.
        """
        eps = epsilon(truth.dtype) if truth is not None else float(np.finfo(np.float32).eps)
        like = like_calls(pair, what, backward) if what is not None and eps > 0 and not is_coarse(eps) else None
        if like in self._floors and not native.nan_mismatch:
            floor, where = self._floors[like]
            if relative(native, scale) <= FLOORS * floor:
                like_it = Evidence.of("like", factor=FLOORS, call=where, floor=floor)
                return Ruling(Verdict.ROUNDING, Figures(relative(native, scale), native.max_abs, floor), (like_it,))
        ruling = self._alone(pair, read, native, truth, scale, eps, backward)
        # Against another draw in float64 the reference's own error is no floor.
        if ruling.verdict is not Verdict.ROUNDING or self.chance.takes(pair):
            ruling = self.drawn(ruling, pair, read, native, eps, scale=scale, backward=backward, what=what)
            # What evaluation mode tells it tells by values.
            chance = ruling.verdict is Verdict.STOCHASTIC or any(one.kind == "distribution" for one in ruling.evidence)
            return (chance and self._evaluated(pair, read, scale, eps, backward)) or ruling
        floor_here = ruling.figures.floor
        if like is not None and floor_here is not None and floor_here < ACCUMULATED(eps):
            self._floors.setdefault(like, (floor_here, pair.candidate.path))
        return ruling

    def _alone(
        self,
        pair: Pair,
        read: Reader,
        native: Difference,
        truth: Array | None,
        scale: float,
        eps: float,
        backward: bool,
    ) -> Ruling:
        """Rule on one value by what both sides do alone, in a wider type where they can."""
        for dtype in _widths(eps):
            runs = self.runs(pair, dtype, backward=backward)
            if runs.reference is None or runs.candidate is None:
                continue
            ours, theirs = _zeros_for_missing(read(runs.reference, True), read(runs.candidate, False))
            if ours is None or theirs is None:
                return self._by_floor(native, eps, DOES_NOT_ARISE)
            wide = relative(difference(ours, theirs), scale)
            rest = None if backward else beside_masks(ours, theirs)
            if rest is not None and wide > TOGETHER(eps) >= rest.rel_l2:
                told = Evidence.of("drowned", reference=float(ours.min()), candidate=float(theirs.min()))
                return Ruling(Verdict.ROUNDING, Figures.of(native), (told,))
            floor = None if truth is None or truth.shape != ours.shape else relative(difference(ours, truth), scale)
            figures = Figures(relative(native, scale), native.max_abs, floor, wide)
            return self._rule(pair, read, figures, eps, native, dtype, backward)
        if eps == 0:
            return self._by_floor(native, eps, self.runs(pair, None, backward=backward).refused)
        return self._by_one_side(pair, read, native, truth, scale, eps, backward)

    def _rule(
        self,
        pair: Pair,
        read: Reader,
        figures: Figures,
        eps: float,
        native: Difference,
        dtype: str | None,
        backward: bool,
    ) -> Ruling:
        wide, floor, local = figures.rel_l2_float64 or 0.0, figures.floor or 0.0, figures.rel_l2
        if eps == 0:
            return Ruling(Verdict.DIFFERS, figures, (Evidence("whole_numbers"),))
        small = local <= max(FLOORS * floor, ROUNDING(eps)) and not native.nan_mismatch
        same_settings = not contrasts(pair.reference, pair.candidate)
        if dtype == "float32":
            figures = attrs.evolve(figures, rel_l2_float64=None)
            evidence = Evidence.of("float32", wide=wide, floor=floor)
            together = Verdict.ROUNDING if small else Verdict.PRECISION
            return Ruling(
                together if wide <= UNSETTLED(epsilon_of("float32")) else Verdict.DIFFERS, figures, (evidence,)
            )
        if wide <= (CONSTANT if same_settings else TOGETHER)(eps):
            evidence = Evidence.of("float64_agrees", wide=wide, local=local, floor=floor)
            return Ruling(Verdict.ROUNDING if small else Verdict.PRECISION, figures, (evidence,))
        found = self._narrow.explains(wide, pair, read, backward=backward, eps=eps)
        if found is not None:
            verdict = Verdict.ROUNDING if small else Verdict.PRECISION
            return Ruling(verdict, figures, (Evidence.of("narrow_cast", **found),))
        return Ruling(Verdict.DIFFERS, figures, (Evidence.of("float64_differs", bound=TOGETHER(eps)),))

    def _by_one_side(
        self,
        pair: Pair,
        read: Reader,
        native: Difference,
        truth: Array | None,
        scale: float,
        eps: float,
        backward: bool,
    ) -> Ruling:
        """Rule by the one side that runs in float64, as the truth for both; where none does, by both as they are."""
        lifted, own = (self.runs(pair, dtype, backward=backward) for dtype in ("float64", None))
        if own.reference is None or own.candidate is None:
            return self._by_floor(native, eps, lifted.refused)
        # Of a gradient that several calls send, what was recorded is the sum: alone a call gives its own part.
        ours = read(own.reference, True) if truth is None or backward else truth
        theirs = read(own.candidate, False)
        if ours is None and own.reference.recorded:
            return self._by_floor(native, eps, lifted.refused)
        ours, theirs = _zeros_for_missing(ours, theirs)
        if ours is None or theirs is None:
            return self._by_floor(native, eps, DOES_NOT_ARISE)
        alike = not contrasts(pair.reference, pair.candidate)
        bound = (SAME if backward else ROUNDING if alike else NEGLIGIBLE)(eps)
        exact = None if lifted.reference is None else read(lifted.reference, True)
        if exact is not None:
            floor, error = (relative(difference(exact, one), scale) for one in (ours, theirs))
            side = "reference"
        elif lifted.candidate is not None and (exact := read(lifted.candidate, False)) is not None:
            floor, error = (relative(difference(exact, one), scale) for one in (theirs, ours))
            side = "candidate"
        else:
            error = relative(difference(ours, theirs), scale)
            figures = Figures(relative(native, scale), native.max_abs)
            evidence = Evidence("native", {**reason(lifted.refused), "wide": error})
            small = error <= (bound if backward else UNSETTLED(eps)) and not native.nan_mismatch
            return Ruling(Verdict.ROUNDING if small else Verdict.DIFFERS, figures, (evidence,))
        figures = Figures(relative(native, scale), native.max_abs, floor)
        measured = {"side": side, "floor": floor, "error_rel_l2": error}
        evidence = Evidence("one_side_in_float64", {**reason(lifted.refused), **measured})
        small = error <= max(FLOORS * floor, bound) and not native.nan_mismatch
        return Ruling(Verdict.ROUNDING if small else Verdict.DIFFERS, figures, (evidence,))

    def _by_floor(self, native: Difference, eps: float, refused: Refusal | None) -> Ruling:
        """Rule by what was seen in the whole model, where the call cannot run alone."""
        figures = Figures.of(native)
        evidence = Evidence("machine_epsilon", reason(refused))
        small = eps > 0 and native.rel_l2 <= UNSETTLED(eps) and not native.nan_mismatch
        return Ruling(Verdict.ROUNDING if small else Verdict.DIFFERS, figures, (evidence,), settled=False)

    def runs(self, pair: Pair, dtype: str | None, *, own: bool = True, backward: bool = False) -> _Runs:
        """Return what both sides of a pair do alone in a dtype (None: their own): forward, or ``backward`` too."""
        both = backward or self._replays.has(pair, dtype, own, True)
        if both:
            self._replays.drop(pair, dtype, own, False)
        found: _Runs = self._replays.get(
            pair, (dtype, own, both), lambda: self._run_both(pair, dtype, own, both), lambda runs: runs.size
        )
        return found

    def _run_both(self, pair: Pair, dtype: str | None, own: bool, backward: bool) -> _Runs:
        runs = _Runs()
        try:
            runs.reference = self.bench.run_reference(pair, dtype, backward=backward)
        except Exception as error:  # a kernel without float64, a hard-coded cast: the reason goes into the evidence
            runs.refused = refusal("reference", error)
        truth = None if runs.reference is None else runs.reference.observed
        try:
            runs.candidate = self.bench.run_candidate(pair, truth, dtype, own=own, backward=backward)
        except Exception as error:  # as above
            runs.refused = runs.refused or refusal("candidate", error)
        return runs

    def rounds(self, pair: Pair, read: Reader, native: Difference, scale: float, *, ours: bool = True) -> bool:
        """Return whether what one side's call alone rounds natively, against float64, explains a difference."""
        runs = (self.runs(pair, dtype, backward=True) for dtype in ("float64", None))
        alone = (one.reference if ours else one.candidate for one in runs)
        wide, own = (None if run is None else read(run, ours) for run in alone)
        if wide is None or own is None or native.nan_mismatch:
            return False
        return relative(native, scale) <= FLOORS * relative(difference(wide, own), scale)

    def drawn(
        self,
        ruling: Ruling,
        pair: Pair,
        read: Reader,
        native: Difference,
        eps: float,
        *,
        scale: float = 0.0,
        backward: bool = True,
        what: Hashable = None,
    ) -> Ruling:
        """Rule anew where random numbers are drawn: by the reference, which is chance, or by one side only, a fault."""
        figures = Figures(relative(native, scale), native.max_abs)

        def fault(found: Lone) -> Ruling:
            return Ruling(Verdict.DIFFERS, figures, (found.evidence,), hint=found.cause)

        lone = self.chance.lone(pair)
        if lone is not None and not self.chance.draws(pair, read, ours=not lone.ours, backward=backward):
            calls = (lone.calls, frozenset[Key]()) if lone.ours else (frozenset[Key](), lone.calls)
            idle = self._idle.setdefault(calls, Settler(attrs.evolve(self.bench, idle=calls), self._replays.shared))
            without = idle._alone(pair, read, _TOGETHER_AT_SIGHT, None, scale, eps, backward)
            if without.settled and without.verdict is not Verdict.DIFFERS:
                return fault(lone)
        draws = [self.chance.draws(pair, read, ours=ours, backward=backward) for ours in (True, False)]
        if not any(draws):
            if not self.chance.takes(pair) or relative(native, scale) <= SAME(eps):
                return ruling
            if is_recorded(self.bench.reference):
                return Ruling(Verdict.STOCHASTIC, figures, (Evidence("drawn_here"),))
            # What no seed changes may still be drawn, and seldom: then both sides nearly always give the same.
            steady = self.chance.steady(pair, read, backward=backward)
            if steady is None or is_suspect(difference(*steady), steady[0].dtype, scale):
                return ruling
            return Ruling(Verdict.STOCHASTIC, figures, (Evidence("stochastic"),))
        if is_recorded(self.bench.reference):
            if not draws[1] and self.chance.is_steady(pair):
                return fault(ONLY_REFERENCE)
            return Ruling(Verdict.STOCHASTIC, figures, (Evidence("drawn_here"),))
        alike = not contrasts(pair.reference, pair.candidate)
        if alike and self.chance.differ(pair, read, what, backward=backward):
            if not all(draws):
                return fault(ONLY_REFERENCE if draws[0] else ONLY_CANDIDATE)
            return Ruling(Verdict.DIFFERS, figures, (Evidence.of("distribution", seeds=SEEDS[0]),))
        return Ruling(Verdict.STOCHASTIC, figures, (Evidence("stochastic"),)) if draws[0] else ruling

    def _evaluated(self, pair: Pair, read: Reader, scale: float, eps: float, backward: bool) -> Ruling | None:
        """Rule on what chance hides by what both sides do in evaluation mode; None where they are together there.

        Also where one of them draws there too, or does not compute the value.
        """
        if self._still is None:
            self._still = Settler(attrs.evolve(self.bench, evaluating=True), self._replays.shared)
        still = self._still
        runs = still.runs(pair, None, backward=backward)
        ours, theirs = (
            None if one is None else read(one, side) for one, side in ((runs.reference, True), (runs.candidate, False))
        )
        if ours is None or theirs is None or not is_suspect(apart := difference(ours, theirs), ours.dtype, scale):
            return None
        if any(still.chance.draws(pair, read, ours=side, backward=backward) for side in (True, False)):
            return None
        ruling = still._alone(pair, read, apart, ours, scale, eps, backward)
        if ruling.verdict is not Verdict.DIFFERS or not ruling.settled:
            return None
        return attrs.evolve(ruling, evidence=(Evidence("evaluation_mode"), *ruling.evidence))


def _widths(eps: float) -> tuple[str | None, ...]:
    """Return the types in which a value of that machine epsilon is settled: the next wider one where there is none."""
    if eps == 0:
        return (None,)
    return ("float64", "float32") if eps > epsilon_of("float32") else ("float64",)


def _zeros_for_missing(a: Array | None, b: Array | None) -> tuple[Array | None, Array | None]:
    if a is None and b is not None:
        return np.zeros_like(b), b
    if b is None and a is not None:
        return a, np.zeros_like(a)
    return a, b
