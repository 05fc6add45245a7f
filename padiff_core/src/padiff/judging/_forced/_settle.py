"""Settle suspects: is a difference a fault, rounding, another precision, or chance?

The evidence, strongest first: both sides alone in float64; the reference twice, where it disagrees with itself;
one side alone in float64, where the other has no kernel for it, as the truth for both; both alone as they are, against
the format's machine epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench, Check, Reader, Replayed, Spot, is_recorded, with_zeros
from padiff.judging._forced._distributions import SEEDS
from padiff.judging._forced._merged_rounding import Moved, moved_by_merging
from padiff.judging._forced._own_rounding import Narrow, rounding_nearby
from padiff.judging._forced._question import NARROWED, TOGETHER_AT_SIGHT, Question, narrower_given
from padiff.judging._forced._randomness import Randomness, described, like_calls
from padiff.judging._forced._replays import PairReplays, Replays
from padiff.judging._suspicion import DOES_NOT_ARISE, Refusal, Ruling
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
    epsilon_of,
    is_coarse,
    is_suspect,
)
from padiff.report import SIDES, Cause, Evidence, Figures, Verdict
from padiff.trace import Key


@attrs.frozen(eq=False)
class BothRuns:
    """What both sides of a pair did by themselves."""

    reference: Replayed | None
    candidate: Replayed | None
    refused: Refusal
    """Why the first of them did not that does not run so."""

    def values(self, read: Reader) -> tuple[Array | None, Array | None]:
        """Return one value of both sides; None of one that did not run, or did not make it."""
        ours = None if self.reference is None else read(self.reference, True)
        return ours, None if self.candidate is None else read(self.candidate, False)


class Settler:
    """Settle suspects by running calls alone; each call is run once for all its suspects."""

    def __init__(self, bench: Bench, replays: Replays[Any] | None = None) -> None:
        self.bench = bench
        self.replays = PairReplays(bench, replays)
        self.randomness = Randomness(bench, self.replays)
        self.narrow = Narrow(self.runs, self.replays)
        self._others: dict[Hashable, Settler] = {}
        """Another condition -> what settles suspects under it."""
        self._merged: dict[Key, Moved | None] = {}
        """Pair -> what other roundings of the weights make of it that were merged."""
        self._floors: dict[tuple[Any, ...], tuple[float, str]] = {}
        """What calls that round alike have in common -> the noise floor of one of them, and its path."""

    def settle(self, asked: Question) -> Ruling:
        """Rule on one value of a call.

        Calls of one class with the same settings and shapes round alike: what one of them shows in float64 tells for
        all, as far as its noise floor goes.
        """
        pair, eps = asked.pair, asked.eps
        like = like_calls(asked) if asked.what is not None and eps > 0 and not is_coarse(eps) else None
        if like in self._floors:
            floor, where = self._floors[like]
            if asked.error <= FLOORS * floor:
                like_it = Evidence.of("like", factor=FLOORS, call=where, floor=floor)
                return Ruling(Verdict.ROUNDING, attrs.evolve(asked.figures, floor=floor), (like_it,))
        ruling = self._alone(asked)
        # Against another draw in float64 the reference's own error is no floor.
        if ruling.verdict is not Verdict.ROUNDING or self.randomness.takes_numbers(pair):
            ruling = self.with_randomness(ruling, asked)
            # What evaluation mode tells it tells by values.
            chance = ruling.verdict is Verdict.STOCHASTIC or ruling.rests_on("distribution")
            return (chance and self._evaluated(asked)) or ruling
        floor_here = ruling.figures.floor
        if like is not None and floor_here is not None and floor_here < ACCUMULATED(eps):
            self._floors.setdefault(like, (floor_here, pair.candidate.path))
        return ruling

    def in_parts(self, check: Check, asked: Question) -> tuple[Question, Ruling]:
        """Rule on a value by its small parts that are apart; return what was asked of: a part, where that is a fault.

        Nothing but float64 tells of one: natively it may be what rounding left of larger numbers.
        """
        for part in check.parts:
            ruling = self.settle(one := asked.of(part))
            differs = ruling.verdict is Verdict.DIFFERS and ruling.rests_on("float64_differs")
            if differs and not self._is_left_of_zeros(one, asked):
                extent = check.spot.reference.shape[part.axis]
                said = Evidence.of("small_part", count=len(part.places), extent=extent, axis=part.axis)
                return one, ruling.resting_on(said)
        return asked, Ruling(Verdict.ROUNDING, asked.figures, ())

    def _is_left_of_zeros(self, part: Question, whole: Question) -> bool:
        """Return whether a part is what rounding left of zeros on both sides, of a table that float64 leaves as it is.

        The sines of a circle's halves are 1e-7 in float32, 1e-16 in float64, and that rounded to float32.
        """
        if part.native.scale * (1 + part.native.rel_l2) > NEGLIGIBLE(whole.eps) * whole.native.scale:
            return False
        ours, _ = self.runs(part.pair, "float64").values(part.read)
        return ours is not None and part.truth is not None and np.array_equal(ours, part.truth)

    def _alone(self, asked: Question) -> Ruling:
        """Rule on one value by what both sides do alone, in a wider type where they can."""
        eps, native = asked.eps, asked.native
        for dtype in asked.widths:
            runs = self.runs(asked.pair, dtype, backward=asked.backward)
            if None in (runs.reference, runs.candidate) and dtype is not None:
                runs = self.runs(asked.pair, dtype, backward=asked.backward, uncast=1.0)
            if runs.reference is None or runs.candidate is None:
                continue
            both = with_zeros(*runs.values(asked.read))
            if both is None:
                return _by_floor(asked, DOES_NOT_ARISE)
            ours, theirs = both
            wide = asked.error_between(ours, theirs)
            rest = None if asked.backward or asked.returned else beside_masks(ours, theirs)
            if rest is not None and wide > TOGETHER(eps) >= rest.rel_l2:
                told = Evidence.of("drowned", reference=float(ours.min()), candidate=float(theirs.min()))
                return Ruling(Verdict.ROUNDING, Figures.of(native), (told,))
            ruling = self._rule(asked, asked.in_float64(ours, theirs), dtype)
            return self._uncast(asked, ruling) or ruling
        if eps == 0:
            return _by_floor(asked, self.runs(asked.pair, None, backward=asked.backward).refused)
        return self._by_one_side(asked)

    def _uncast(self, asked: Question, ruling: Ruling) -> Ruling | None:
        """Rule on what is no fault natively, and is in float64, without casts that do nothing natively; else None.

        Those to the value's own type, and to finer ones, round in float64 alone. Where one side's call is given a
        narrower type, its model has this one, and so has what its code casts, if that moves the value by little.
        """
        eps, narrower = asked.eps, narrower_given(asked.pair)
        narrower = narrower if (ruling.figures.rel_l2_float64 or 0.0) <= NEGLIGIBLE(narrower) else 0.0
        small = asked.figures.rel_l2 <= FLOORS * (ruling.figures.floor or 0.0) and not asked.native.nan_mismatch
        if not ((small or narrower) and ruling.rests_on("float64_differs")) or eps < epsilon_of("float32"):
            return None
        most, backward = max(eps, narrower), asked.backward
        ours, theirs = self.runs(asked.pair, "float64", backward=backward, uncast=most).values(asked.read)
        both = None if ours is None or theirs is None else asked.in_float64(ours, theirs)
        found = None if both is None else self._rule(asked, both, "float64")
        agreeing = (Verdict.ROUNDING, Verdict.PRECISION) if narrower else (Verdict.ROUNDING,)
        return found if found is not None and found.verdict in agreeing else None

    def _rule(self, asked: Question, figures: Figures, dtype: str | None) -> Ruling:
        wide, floor, eps = figures.rel_l2_float64 or 0.0, max(figures.floor or 0.0, self._of_merged(asked)), asked.eps
        if eps == 0:
            return Ruling(Verdict.DIFFERS, figures, (Evidence("whole_numbers"),))
        small = figures.rel_l2 <= max(FLOORS * floor, ROUNDING(eps)) and not asked.native.nan_mismatch
        together = Verdict.ROUNDING if small else Verdict.PRECISION
        if dtype == "float32":
            verdict = together if wide <= UNSETTLED(epsilon_of("float32")) else Verdict.DIFFERS
            evidence = Evidence.of("float32", wide=wide, floor=floor)
            return Ruling(verdict, attrs.evolve(figures, rel_l2_float64=None), (evidence,))
        agrees = wide <= max((CONSTANT if asked.alike else TOGETHER)(eps), FLOORS * self._of_merged(asked))
        found = None if agrees else self.narrow.explains(asked, wide, small=small)
        if not agrees and found is None:
            return Ruling(Verdict.DIFFERS, figures, (Evidence.of("float64_differs", bound=TOGETHER(eps)),))
        measured = {"wide": wide, "local": figures.rel_l2, "floor": floor}
        if not (small or asked.backward) and self.narrow.loses_digits(asked, figures):
            return Ruling(Verdict.DIFFERS, figures, (Evidence("digits_lost", measured),))
        told = Evidence("narrow_cast", found) if found else Evidence("float64_agrees", measured)
        return Ruling(together, figures, (told,))

    def _of_merged(self, asked: Question) -> float:
        """Return how far the rounding of merged weights moves a value, relative L2; 0 where there are none."""
        if not self.bench.alignment.merged or asked.backward:
            return 0.0
        if asked.pair.key not in self._merged:
            self._merged[asked.pair.key] = moved_by_merging(self.bench, asked.pair)
        found = self._merged[asked.pair.key]
        still, moved = (None, None) if found is None else (asked.read(one, False) for one in found)
        return 0.0 if still is None or moved is None else asked.error_between(still, moved)

    def _by_one_side(self, asked: Question) -> Ruling:
        """Rule by the one side that runs in float64, as the truth for both; where none does, by both as they are."""
        read, eps, backward = asked.read, asked.eps, asked.backward
        lifted, own = (self.runs(asked.pair, dtype, backward=backward) for dtype in ("float64", None))
        if own.reference is None or own.candidate is None:
            return _by_floor(asked, lifted.refused)
        # Of a gradient that several calls send, what was recorded is the sum: alone a call gives its own part.
        made, theirs = own.values(read)
        made = made if asked.truth is None or backward else asked.truth
        if made is None and own.reference.recorded:
            return _by_floor(asked, lifted.refused)
        both = with_zeros(made, theirs)
        if both is None:
            return _by_floor(asked, DOES_NOT_ARISE)
        ours, theirs = both
        bound = (SAME if backward else ROUNDING if asked.alike else NEGLIGIBLE)(eps)
        exact, other = lifted.values(read)
        if exact is not None:
            floor, error, side = asked.error_between(exact, ours), asked.error_between(exact, theirs), "reference"
        elif other is not None:
            floor, error, side = asked.error_between(other, theirs), asked.error_between(other, ours), "candidate"
        else:
            error = asked.error_between(ours, theirs)
            evidence = Evidence("native", {**lifted.refused, "wide": error})
            small = error <= (bound if backward else UNSETTLED(eps)) and not asked.native.nan_mismatch
            return Ruling(Verdict.ROUNDING if small else Verdict.DIFFERS, asked.figures, (evidence,))
        measured = {"side": side, "floor": floor, "error_rel_l2": error}
        if max(FLOORS * floor, bound) < error <= UNSETTLED(eps):
            near = rounding_nearby(self.replays, asked, ours=side == "reference")
            floor, measured["nearby"] = max(floor, near), near
        evidence = Evidence("one_side_in_float64", {**lifted.refused, **measured})
        small = error <= max(FLOORS * floor, bound) and not asked.native.nan_mismatch
        figures = attrs.evolve(asked.figures, floor=floor)
        wide = math.inf if small else self._narrowed(asked)
        if wide <= max(FLOORS * floor, bound):
            agreed = Evidence.of("float64_agrees", wide=wide, local=asked.figures.rel_l2, floor=floor)
            return Ruling(Verdict.PRECISION, attrs.evolve(figures, rel_l2_float64=wide), (agreed,))
        narrow = None if small else self.narrow.explains(asked, error)
        if narrow is not None:
            return Ruling(Verdict.PRECISION, figures, (evidence, Evidence.of("narrow_cast", **narrow)))
        return Ruling(Verdict.ROUNDING if small else Verdict.DIFFERS, figures, (evidence,))

    def _narrowed(self, asked: Question) -> float:
        """Return how far apart both are in float64 where only functions without a kernel there compute in float32."""
        runs = (self.runs(asked.pair, "float64", backward=asked.backward, **how) for how in NARROWED)
        found = (with_zeros(*one.values(asked.read)) for one in runs if None not in (one.reference, one.candidate))
        return next((asked.error_between(*both) for both in found if both is not None), math.inf)

    def runs(self, pair: Pair, dtype: str | None, *, backward: bool = False, **condition: Any) -> BothRuns:
        """Return what both sides of a pair do alone in a dtype (None: their own): forward, or ``backward`` too."""
        found = self.replays.of_both(pair, {"dtype": dtype, "backward": backward, **condition})
        ours, theirs = (one if isinstance(one, Replayed) else None for one in found)
        refused = (one for one in found if not isinstance(one, Replayed))
        return BothRuns(ours, theirs, next(refused, DOES_NOT_ARISE))

    def is_spoilt(self, asked: Question) -> bool:
        """Return whether a value is right but for a tensor that was written over, since a call was given it wrongly.

        That may be right for what takes it next: a residual, beside a norm that was left out.
        """
        ours = self.runs(asked.pair, "float64").reference
        if ours is None:
            return False
        how = {"dtype": "float64", "backward": False, "swapping": True, "truth": ours.observed}
        bound, theirs = TOGETHER(asked.eps), self.replays.of_side(asked.pair, False, how)
        if theirs is None:  # what lacks a kernel there computes in the type that it has
            bound, theirs = NEGLIGIBLE(asked.eps), self.replays.of_side(asked.pair, False, {**how, "narrowing": True})
        both = None if theirs is None else with_zeros(asked.read(ours, True), asked.read(theirs, False))
        return both is not None and asked.error_between(*both) <= bound

    def made_alone(self, pair: Pair, spot: Spot) -> Array | None:
        """Return what the candidate's call makes at a spot by itself, in float64; None where it does not run so."""
        alone = self.runs(pair, "float64").candidate
        return None if alone is None else alone.observed.spots.get(spot.key)

    def rounds(self, asked: Question, *, ours: bool) -> bool:
        """Return whether what one side's call alone rounds natively, against float64, explains a difference."""
        runs = (self.runs(asked.pair, dtype, backward=True) for dtype in ("float64", None))
        wide, own = (one.values(asked.read)[not ours] for one in runs)
        if wide is None or own is None or asked.native.nan_mismatch:
            return False
        return asked.error <= FLOORS * asked.error_between(wide, own)

    def rounding(self, pairs: Sequence[Pair], read: Reader, native: Difference) -> tuple[Pair, bool] | None:
        """Return the first pair of which one side rounds so much by itself, and whether the reference does; or None."""
        sides = ((Question(pair, read, native), ours) for ours in (True, False) for pair in pairs)
        return next(((asked.pair, ours) for asked, ours in sides if self.rounds(asked, ours=ours)), None)

    def with_randomness(self, ruling: Ruling, asked: Question) -> Ruling:
        """Rule anew where random numbers are sampled: by both sides, which hides values, or by one alone, a fault."""

        def fault(kind: str, cause: str, *, ours: bool, **more: Any) -> Ruling:
            side = {"side": SIDES[not ours]}
            hint = Cause(cause, {**side, **more}, verified=True)
            return Ruling(Verdict.DIFFERS, asked.figures, (Evidence(kind, side),), hint=hint)

        def random(kind: str) -> Ruling:
            return Ruling(Verdict.STOCHASTIC, asked.figures, (Evidence(kind),))

        known, pair = self.randomness, asked.pair
        alone = known.drawing_alone(pair)
        if any(alone) and not known.samples(asked, ours=not alone[0]):
            idle = self._under(idle=tuple(frozenset(call.key for call in calls) for calls in alone))
            without = idle._alone(attrs.evolve(asked, native=TOGETHER_AT_SIGHT, truth=None))
            if without.settled and without.verdict is not Verdict.DIFFERS:
                told = [described(call) for call in (*alone[0], *alone[1])]
                return fault("without_dropout", "dropout", ours=bool(alone[0]), calls=told)
        sampled = [known.samples(asked, ours=ours) for ours in (True, False)]
        if not any(sampled) and (not known.takes_numbers(pair) or asked.error <= SAME(asked.eps)):
            return ruling
        if is_recorded(self.bench.reference):
            on_reference = sampled[0] and not sampled[1] and known.takes_none(pair)
            return fault("randomness", "randomness", ours=True) if on_reference else random("drawn_here")
        if not any(sampled):
            # What no seed changes may still be random, and seldom: then both sides nearly always give the same.
            both = known.under_one_seed(asked)
            apart = both is None or is_suspect(difference(*both), both[0].dtype, asked.scale)
            return ruling if apart else random("stochastic")
        if asked.alike and known.differ(asked):
            if not all(sampled):
                return fault("randomness", "randomness", ours=sampled[0])
            return Ruling(Verdict.DIFFERS, asked.figures, (Evidence.of("distribution", seeds=SEEDS[0]),))
        return random("stochastic") if sampled[0] else ruling

    def _under(self, **condition: Any) -> Settler:
        """Return what settles suspects under another condition of the bench."""
        key = tuple(condition.items())
        if key not in self._others:
            self._others[key] = Settler(attrs.evolve(self.bench, **condition), self.replays.shared)
        return self._others[key]

    def _evaluated(self, asked: Question) -> Ruling | None:
        """Rule on what chance hides by what both sides do in evaluation mode; None where they are together there.

        Also where one of them draws there too, or does not compute the value.
        """
        still = self._under(evaluating=True)
        ours, theirs = still.runs(asked.pair, None, backward=asked.backward).values(asked.read)
        if ours is None or theirs is None or not is_suspect(apart := difference(ours, theirs), ours.dtype, asked.scale):
            return None
        if any(still.randomness.samples(asked, ours=side) for side in (True, False)):
            return None
        ruling = still._alone(attrs.evolve(asked, native=apart, truth=ours))
        shown = ruling.settled and ruling.verdict is Verdict.DIFFERS
        return attrs.evolve(ruling, evidence=(Evidence("evaluation_mode"), *ruling.evidence)) if shown else None


def _by_floor(asked: Question, refused: Refusal) -> Ruling:
    """Rule by what was seen in the whole model, where the call cannot run alone."""
    native, evidence = asked.native, Evidence("machine_epsilon", refused)
    small = native.rel_l2 <= UNSETTLED(asked.eps)
    return Ruling(Verdict.ROUNDING if small else Verdict.DIFFERS, Figures.of(native), (evidence,), settled=False)
