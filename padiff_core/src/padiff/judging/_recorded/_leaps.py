"""Judge two runs of which only records are left: where does a difference arise, and what may follow from it?

Nothing was fed, so a call is judged against what it was given: what it gives may differ by as much as its inputs do,
and by rounding. Where it differs by far more, the difference arises there, else it may be a consequence. The same
backward, against the gradients that came to a call, and what it computed forward. If nothing leaps: `with_first`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Check, Spot
from padiff.judging._causes import OF_STATE
from padiff.judging._cuts import cut_side
from padiff.judging._recorded._gradients import Sums, given, is_awaited, is_frozen, is_told, sender, tells_nothing
from padiff.judging._recorded._levels import Drift, Ends, Level, Own, Takers, cast_of, is_behind, most_of_code
from padiff.judging._recorded._magnified import Magnified, magnified
from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._scaled_here import scaled_here
from padiff.judging._recorded._sent_alike import of_each_row
from padiff.judging._recorded._turned import TURNED, as_rounding
from padiff.judging._sizes import Held, Size, is_noise, says_the_same_here, size_compared
from padiff.judging._suspicion import AGREEING, Ruled, Ruling, Suspicion, contrasted, suspicion_of, value_at
from padiff.numerics import (
    ACCUMULATION,
    CONSTANT,
    FLOORS,
    NEGLIGIBLE,
    NEGLIGIBLE_GRADIENT,
    NEGLIGIBLE_SENT,
    RANDOM,
    SAME,
    UNSETTLED,
    VANISHES,
    Threshold,
    difference,
    epsilon_of,
    is_coarse,
)
from padiff.report import Evidence, Figures, Phase, Verdict
from padiff.trace import Call, Key, Leaf, contrasts, is_sampling, samples_otherwise


class Leaps:
    """Judge one step of two recorded runs."""

    def __init__(self, meter: Meter, alignment: Alignment, drift: Drift, after: Drift) -> None:
        """Take what parameters are apart by before the step, and ``after`` it, for calls that are made behind it."""
        self.reference, self.candidate = meter.traces
        self.meter, self.alignment, self._drift = meter, alignment, drift
        behind = [pair for pair in alignment.pairs if is_behind(pair, meter.traces)]
        self.moved = dict.fromkeys((pair.key for pair in behind), after)
        """Of each call that is made behind the step, by its key: how far apart the models are by then."""
        self._held = {pair.key: apart for path, apart in drift.modules.items() for pair in alignment.using(path)}
        for path, apart in after.modules.items():
            self._held |= {pair.key: apart for pair in alignment.using(path) if pair.key in self.moved}
        """Of each matched call, by its key: how far apart its own parameters are."""
        self.checks: list[Check] = []
        """Every value that is not equal, forward and backward."""
        self.compared: set[int] = set()
        """Tokens of the reference whose values were compared."""
        self.magnified: dict[Pair, Magnified] = {}
        """Calls behind which gradients differ by rounding alone, however far, and why."""
        self.left_out: dict[str, dict[str, None]] = {}
        """Why values are compared in part -> paths of the candidate's modules that made them."""
        self.frozen: Mapping[str, bool] = {}
        """Paths of the candidate's modules of which one side alone got a gradient: whether the other one froze that."""
        self.levels: dict[Key, Level] = {}
        """Of each matched call, by its key: what its code took and, from the calls inside, got."""
        self.gradients: dict[Key, Level] = {}
        """The same of the gradients that came to it."""
        self._values: dict[tuple[int, int], Level] = {}
        self._last: dict[Key, str] = {}
        """Of each matched call: the child that was called last."""
        self._sent: dict[tuple[int, int], Level] = {}
        """Gradients that were met, and how far they are apart."""
        self._unknown: set[Key] = set()
        """Matched calls of which it is not known what they were given: it was not kept."""
        self._ungraded: set[Key] = set()
        """The same of the gradients that came to them."""
        self._ends = Ends(behind, alignment)
        self._sums, self._takers = Sums(alignment, meter.traces), Takers(alignment)
        self._given = given(self.reference), given(self.candidate)
        """Tokens of what the script gave to each model: whether it asks for a gradient is its own business."""
        self._untold = tells_nothing(self.reference, self.candidate)

    def forward(self) -> Iterator[Suspicion]:
        """Yield the values that differ, in execution order."""
        return (one for call in self.candidate.tops for one in self._forward(call))

    def _forward(self, call: Call) -> Iterator[Suspicion]:
        pair = self.alignment.of_candidate(call)
        owner = self.alignment.holding(call)
        if pair is not None:
            name = call.path if owner is None else owner.name_of(call)
            between = ("start" if owner is None else self._last.get(owner.key, "start"), name)
            drift = self.moved.get(pair.key, self._drift)
            read = max(drift.whole, 0.0 if call.training else drift.statistics.get(call.path, 0.0))
            held = self._held.get(pair.key, Own()).error
            self.levels[pair.key] = level = Level(held, drift=read, rounded=held)
            for leaves in pair.taken:
                spot = Spot("input", pair, owner, between, *leaves)
                yield from self._see(spot, level)
                if spot.reference.token not in self.compared and not self._untold[0]:
                    self._unknown.add(pair.key)  # a run that never tells it would name nothing but the model
            if owner is not None and (len(pair.inputs) < len(call.inputs) or self._untold[0]):
                level.add(self.levels[owner.key])  # what is compared with nothing was made by the code around
        for child in call.children:
            yield from self._forward(child)
        if pair is not None:
            between = (self._last.pop(pair.key, "start"), "end")
            above = self._ends.of(pair) if owner is None else self.levels[owner.key]
            for leaves in pair.made:
                yield from self._see(Spot("output", pair, pair, between, *leaves), above)
            if owner is not None:
                self._last[owner.key] = name

    def _see(self, spot: Spot, taker: Level) -> Iterator[Suspicion]:
        """Judge a value where it is first seen, and let whoever takes it know of it."""
        key = spot.reference.token, spot.candidate.token
        if key not in self._values:
            size, types = self.size(spot.reference, spot.candidate), self.meter.types(spot)
            self._values[key] = Level()
            if size is not None:
                self.compared.add(key[0])
                size = attrs.evolve(size, eps=max(size.eps, epsilon_of(*types) * bool(size.eps)))
                self._values[key] = Level(size.error, cast=cast_of(*types) * bool(size.error))
                yield from self._judged(spot, size, self._values[key])
            elif spot.owner is not None:  # not kept: it may differ as much as what it was made of
                self._values[key].add(self.levels[spot.owner.key])
        taker.add(self._values[key])

    def innermost_known(self, pair: Pair, *, backward: bool = False) -> Pair:
        """Return a call, or where it is not known what that was given, the innermost one around of which it is."""
        unknown = self._unknown | self._ungraded if backward else self._unknown
        while pair.key in unknown and (above := self.alignment.around(pair)) is not None:
            pair = above
        return pair

    def unseen(self, pair: Pair) -> bool:
        """Return whether a call gives something that was not compared."""
        return any(pair.reference.outputs[i].token not in self.compared for i, _ in pair.outputs)

    def is_random(self, token: int) -> bool:
        """Return whether a value of the reference's follows from random numbers."""
        return any(level.random and level.error for key, level in self._values.items() if key[0] == token)

    def same(self, ours: Leaf, theirs: Leaf) -> bool:
        """Return whether two values are one, as far as is known: first by a few of the elements."""
        few, fewer = self.reference.samples.get(ours.token), self.candidate.samples.get(theirs.token)
        if ours.shape != theirs.shape or few is None or fewer is None:
            return False
        if difference(few, fewer).rel_l2 > SAME(epsilon_of(ours.dtype, theirs.dtype)):
            return False
        return (size := self.size(ours, theirs)) is not None and size.error <= SAME(size.eps)

    def size(self, ours: Leaf, theirs: Leaf) -> Size | None:
        """Return how far apart two values are, as far as they are compared; None where one of them was not kept."""
        keys = self.reference.values.get(ours.token), self.candidate.values.get(theirs.token)
        return self.meter.parts.get((ours.token, theirs.token)) or self.meter.size(*keys)

    def _judged(self, spot: Spot, size: Size, level: Level) -> Iterator[Suspicion]:
        kept = says_the_same_here(spot, size, self.meter.traces)
        size, why = (size, "") if kept else size_compared(spot, size, self.meter.traces)
        if why:
            level.error = self.meter.parts.setdefault((spot.reference.token, spot.candidate.token), size).error
            self.left_out.setdefault(why, {})[(spot.owner or spot.pair).candidate.path or "the model itself"] = None
        check = Check(spot, False, size.difference, kept=kept, close=size.close)
        same = size.difference.equal or self._made_of_calls(spot, size)
        if not same:
            self.checks.append(check)
        if kept:
            level.error = 0.0
            return  # what the call makes of it tells
        owner = spot.owner
        if owner is None:
            level.differs = not same if size.close is None else not size.close
            return  # given by the script: see `unlike_inputs`
        owner = self.innermost_known(owner)
        known = self.levels[owner.key].beside(self._held.get(owner.key), size)
        ruling, source = scaled_here(self._ruled(owner, size, known), spot, owner, size, (level, known), self.meter)
        level.eps, level.cast = size.eps, max(level.cast, known.cast)
        level.random, level.drift = known.random or ruling.verdict is Verdict.STOCHASTIC, known.drift
        level.rounded = known.rounded_to(size, level.cast) if ruling.verdict is Verdict.ROUNDING else 0.0
        level.differs = ruling.verdict is Verdict.DIFFERS
        level.vaguely(known, size.least)
        if ruling.verdict not in AGREEING:
            found = suspicion_of(owner, Phase.FORWARD, value_at(spot), ruling, check)
            yield attrs.evolve(found, arises=source)

    def _made_of_calls(self, spot: Spot, size: Size) -> bool:
        """Return whether a script may have made what it gives of what it was given: it is no further apart than that.

        As a critic is given what a generator made, cut off from its gradients, and a sampler's next step what it gave.
        """
        if spot.owner is not None or size.close is not None:
            return False
        known = self._ends.of(spot.pair)
        return not known.differs and size.error <= min(FLOORS * max(known.error, self._drift.handed), SAME(size.eps))

    def _ruled(self, owner: Pair, size: Size, known: Level) -> Ruled:
        figures = Figures.of(size.difference)
        alone = owner.reference.leaf and owner.candidate.leaf
        if size.close is not None or size.difference.equal:
            return self._by_leap(size, known, NEGLIGIBLE)
        calls = owner.reference, owner.candidate
        # What is as near was drawn alike: both runs began from one seed.
        alike = size.error <= RANDOM(size.eps) and not size.least
        if all(map(is_sampling, calls)) and not contrasts(*calls) and not alike:
            return Ruling(Verdict.STOCHASTIC, figures, (Evidence("drawn_here"),)), False
        shown = contrasted(owner, but=OF_STATE) or samples_otherwise(*calls)
        sure = NEGLIGIBLE(size.eps) if alone and is_coarse(size.eps) else FLOORS * NEGLIGIBLE(size.eps)
        if shown and size.error > max(FLOORS * known.error, sure) and not known.random:
            evidence = Evidence.of("setting_shows", known=known.error, made=size.error)
            return Ruling(Verdict.DIFFERS, figures, (evidence,)), True
        return self._by_leap(size, known, NEGLIGIBLE, most_of_code(size.eps, alone=alone))

    def _by_leap(
        self, size: Size, known: Level, negligible: Threshold, most: Threshold = SAME, times: float = FLOORS
    ) -> Ruled:
        """Rule on a value by what its code was given; by rounding alone it may leap by the ``most``.

        What casts of one side round goes on so many ``times``. Where the user gave a rule, that decides; and the
        difference arises where what its code was given is nearer.
        """
        figures = Figures.of(size.difference)
        if size.close is not None:
            evidence = Evidence("within_tolerance" if size.close else "outside_tolerance")
            verdict = Verdict.WITHIN_TOLERANCE if size.close else Verdict.DIFFERS
            follows = (known.consequence,) if known.differs and not size.close else ()
            arises = not known.differs and size.error > FLOORS * known.error
            return Ruling(verdict, figures, (evidence, *follows)), arises
        if size.difference.equal:
            return Ruling(Verdict.EQUAL, figures, ()), False
        drift = max(self._drift.whole, known.drift)
        sent = (NEGLIGIBLE if negligible is NEGLIGIBLE else NEGLIGIBLE_SENT)(known.cast)
        one_sided = min(max(sent, times * known.error), SAME(known.cast))
        bound = max(SAME(size.eps), NEGLIGIBLE(known.eps), one_sided, VANISHES * drift)
        least = min(VANISHES * negligible(size.eps), most(size.eps))  # coarse: not the whole
        leaps = size.error > max(VANISHES * max(known.error, CONSTANT(size.eps), drift), least)
        if size.eps == 0:
            bound, leaps = 0.0, size.error > 0 and not known.differs  # rounding in front makes no other whole number
        leaps &= not known.least or known.error <= SAME(size.eps)  # else what it took may be as far apart
        if not leaps and not size.error > bound:
            return Ruling(Verdict.ROUNDING, figures, ()), False
        if known.random:
            return Ruling(Verdict.STOCHASTIC, figures, (Evidence("drawn_before"),)), False
        if leaps:
            return Ruling(Verdict.DIFFERS, figures, (Evidence.of("leap", known=known.error, made=size.error),)), True
        if size.error <= times * known.rounded:
            return Ruling(Verdict.ROUNDING, figures, (Evidence("rounding_magnified"),)), False
        return Ruling(Verdict.DIFFERS, figures, (known.said_of(size.error),)), False

    def backward(self) -> Iterator[Suspicion]:
        """Yield the gradients that differ, in the order of the backward pass; said after `forward`."""
        self.gradients = {pair.key: Level() for pair in self.alignment.pairs}
        for call in reversed(self.candidate.tops):
            yield from self._backward(call)

    def _backward(self, call: Call) -> Iterator[Suspicion]:
        pair = self.alignment.of_candidate(call)
        owner = self.alignment.holding(call)
        above = self._ends.leading_to(pair, self.gradients) if owner is None else self.gradients[owner.key]
        if pair is not None:
            level = self.gradients[pair.key]
            level.add(self.levels[pair.key])  # a gradient is computed from values
            for ours, theirs in pair.made:
                value = self._values.get((ours.token, theirs.token), Level())
                level.add(value)
                if owner is None:
                    above.add(value)  # the loss is computed from it
                spot = Spot("output", pair, owner, ("", ""), ours, theirs)
                met = self._takers.met(spot, (above,), (above, level))
                yield from () if met is None else self._meet(*met)
            if len(pair.outputs) < len(call.outputs) or self._untold[1]:
                level.add(above)  # the gradient of what is compared with nothing comes from the code around
        for child in reversed(call.children):
            yield from self._backward(child)
        if pair is not None:
            for leaves in pair.taken:
                spot = Spot("input", pair, pair, ("", ""), *leaves)
                takers = above, self.gradients[pair.key]
                sent = (self._ends.of(pair),) if owner is None else ()  # the script makes others of it
                met = self._takers.met(spot, takers, (*takers, *sent))
                yield from () if met is None else self._meet(*met)

    def _meet(self, spot: Spot, known: Level, takers: tuple[Level, ...]) -> Iterator[Suspicion]:
        """Judge a gradient where the backward pass first leads to it."""
        key = spot.reference.token, spot.candidate.token
        keys = self.reference.gradients.get(key[0]), self.candidate.gradients.get(key[1])
        size = self.meter.size(*keys, awaited=None in keys and is_awaited(spot, self.meter.traces, self._given))
        how = None if size is None or key in self._sent else magnified(spot, size, self.meter)
        unlike = size is not None and key not in self._sent and how is None and self._is_unlike(spot, size, known)
        unknown = size is None and (keys != (None, None) or not is_told(spot, self.meter.traces))
        if unlike or unknown:
            for taker in takers:
                taker.add(known)
        if unknown and spot.what == "output" and not self._untold[1]:
            self._ungraded.add(spot.pair.key)
        if size is None or unlike:
            return
        level = self._sent.get(key)
        if level is None:
            sure = spot.owner is None and not known.error and is_coarse(size.eps)  # a loss, of equal outputs
            ruled = self._by_leap(size, known, NEGLIGIBLE_GRADIENT, NEGLIGIBLE_SENT if sure else SAME)
            (ruling, source), how = as_rounding(ruled, how, spot, size, known, self.meter)
            cast = max(known.cast, cast_of(spot.reference.dtype, spot.candidate.dtype))
            level = self._sent[key] = Level(size.error, eps=size.eps, cast=cast)
            if how is not None and ruling.rests_on(how):
                self.magnified.setdefault(spot.pair, how)
            ruling, source = of_each_row(ruling, source, spot, size, known, self.meter, self.alignment)
            rounded = how or ruling.rests_on("rounding_magnified") or known.rounded * (size.error > UNSETTLED(size.eps))
            if rounded and ruling.verdict in AGREEING:
                level.rounded, level.turned = size.error, known.turned or how in TURNED
            level.random, level.differs = known.random, ruling.verdict is Verdict.DIFFERS
            level.vaguely(known, size.least)
            check = Check(spot, True, size.difference, close=size.close)
            self.checks += [] if size.difference.equal else [check]
            if ruling.verdict not in AGREEING:
                pair = sender(self.alignment, spot, self.meter.traces)
                if side := cut_side(spot.reference, spot.candidate):
                    ruling = attrs.evolve(ruling, evidence=(*ruling.evidence, Evidence("gradient_cut", {"side": side})))
                found = suspicion_of(pair, Phase.BACKWARD, value_at(spot, gradient=True), ruling, check)
                told = None in keys and is_frozen(self.alignment, spot, self.frozen)
                yield attrs.evolve(found, arises=source and not told)
        for taker in takers:
            taker.add(level)

    def _is_unlike(self, spot: Spot, size: Size, known: Level) -> bool:
        """Return whether a gradient differs that is of other uses; one that may be, behind what differs already."""
        one = self._sums.is_one(spot)
        unsure = known.differs and not (one and self._sums.is_shared_alike(spot))
        unlike = unsure or not (one or cut_side(spot.reference, spot.candidate))
        return unlike and self._by_leap(size, known, NEGLIGIBLE_GRADIENT)[0].verdict not in AGREEING

    def left(self, size: Size, users: list[Pair], gradient: Callable[[], tuple[Held, Held]] | None = None) -> Ruled:
        """Rule on a parameter's ``gradient``, or a buffer after the run, by what the calls that use it were given."""
        known, levels = Level(), self.gradients if gradient else self.levels
        for pair in users or self.alignment.pairs[:1]:
            known.add(levels.get(pair.key, Level()))
        # Near a loss's least the terms of a parameter's gradient cancel, and what is left rounds by far more.
        ruling, source = self._by_leap(
            size, known, *((NEGLIGIBLE_GRADIENT, SAME, ACCUMULATION) if gradient else [NEGLIGIBLE])
        )
        coarse = source and size.close is None and size.error <= NEGLIGIBLE(known.eps)
        rounds = gradient and coarse and is_noise(*gradient(), known.eps)  # a sum of what ranks, or slices, round so
        return (attrs.evolve(ruling, verdict=Verdict.ROUNDING, evidence=()), False) if rounds else (ruling, source)
