"""Turn the differences of a forced run into suspicions: which value differs, whose code it is, on what evidence.

A value belongs to the call whose own code made it: a module without children, or the code of a parent between its
children. A gradient belongs to the call that consumed the tensor, or to the code around it. A call that already
differs forward differs backward too; that is not a second source.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing import Bench, Check, Forced, Reader, Spot, gradient_reader, is_recorded, value_reader
from padiff.judging._causes import OF_STATE, cause_between, not_verified
from padiff.judging._compared import coverage_of
from padiff.judging._cuts import cut_side
from padiff.judging._forced._cause_search import found_by_setting, likened
from padiff.judging._forced._cuts import Cuts, cut_inside, with_cut, without_starved
from padiff.judging._forced._harmless import right_as_a_whole
from padiff.judging._forced._loss_rounding import LossRounding, ruling_on_sent
from padiff.judging._forced._openings import Openings, of_another_shape
from padiff.judging._forced._parts import Counting
from padiff.judging._forced._policies import Policies
from padiff.judging._forced._question import Question
from padiff.judging._forced._replays import Replays
from padiff.judging._forced._sampled import sampled_gradients, sampled_values
from padiff.judging._forced._senders import likely_sender, senders
from padiff.judging._forced._settle import Settler
from padiff.judging._forced._state import of_inputs
from padiff.judging._forced._wholes import Response, is_mask, response_by_gradients
from padiff.judging._metrics import Measures
from padiff.judging._suspicion import (
    AGREEING,
    Ruling,
    Suspicion,
    contrasted,
    gradient_sent,
    negligible,
    suspicion_of,
    value_at,
    within,
)
from padiff.kinds import ORDER_SETTINGS
from padiff.numerics import (
    ACCUMULATED,
    GROSS,
    NEGLIGIBLE_SENT,
    Array,
    epsilon,
    is_suspect,
    numpy_dtype,
)
from padiff.parameters import UnitMatch
from padiff.progress import advance, phase
from padiff.report import Coverage, Evidence, Figures, Note, Phase, Verdict
from padiff.trace import Key, Trace


class Judge:
    """Judge one forced run."""

    def __init__(
        self,
        bench: Bench,
        trace: Trace,
        forced: Forced,
        *,
        loss: LossRounding | None,
        matches: Sequence[UnitMatch] = (),
        measures: Measures | None = None,
        replays: Replays[Any] | None = None,
    ) -> None:
        self.alignment: Alignment = bench.alignment
        self.trace = trace
        self.forced = forced
        self.matches = matches
        self.settler = Settler(bench, replays)
        self.loss = loss
        """How far rounding moves the loss that a user gave; the default one is the same on both sides."""
        self.measures = Measures() if measures is None else measures
        self.notes: list[Note] = []
        self.unproven = False
        """Whether a gradient was left to the free runs: each call is right by itself, and the model is not."""
        self.policies = Policies(bench)
        self.masks = False
        """Whether values were left out of the comparison that both sides mask, by other numbers."""
        self._right: dict[tuple[Key, bool], bool | None] = {}
        self._forward: dict[tuple[bool, bool], list[Suspicion]] = {}
        self.counts = Counting(bench, forced.alone)
        self._openings = Openings(bench, forced.checks)

    @cached_property
    def coverage(self) -> Coverage:
        """Return which of the reference's values that lead to its outputs were compared."""
        return coverage_of(self.trace, self.alignment)

    @property
    def is_complete(self) -> bool:
        """Return whether all that leads to the outputs was compared, by values that could be fed."""
        own = any(check.kept or check.tainted for check in self.forced.checks)
        return not (own or self.masks or self.coverage.missing or self.unfit)

    @cached_property
    def unfit(self) -> list[Pair]:
        """Return the pairs of which a tensor could not be fed, or compared, since its shape is another."""
        return [pair for pair in self.alignment.pairs if pair.misfed or pair.misfits]

    @cached_property
    def response(self) -> Response | None:
        """Return the reference's response to rounding as its gradients tell it, of its one output."""
        moved = response_by_gradients(self.trace)
        return None if moved is None else Response({("output", 0): moved})

    def forward(self, *, rough: bool = False, moved: bool = True) -> list[Suspicion]:
        """Settle the forward suspects; return all that is more than rounding, in execution order.

        With ``rough`` what is gross is taken as apart without settling it: enough to see whether the matching is right.
        Unless ``moved``, what follows from a value of another shape stays where it is seen.
        """
        if (asked := (rough, moved)) not in self._forward:
            self._forward[asked] = self._judged_forward(rough=rough, moved=moved)
        return self._forward[asked]

    def _judged_forward(self, *, rough: bool, moved: bool) -> list[Suspicion]:
        found: list[Suspicion] = []
        ends = {leaf.token for leaf in self.alignment.pairs[0].reference.outputs}
        phase("judging", len(self.forced.checks))
        for check in self.forced.checks:
            advance()
            spot, owner = check.spot, check.spot.owner
            truth = self.trace.value(spot.reference)
            if check.backward or check.kept or owner is None or truth is None:
                continue
            if not rough:
                self.policies.look(owner, spot.reference.dtype)
            if check.tainted and not contrasted(owner, but=OF_STATE | ORDER_SETTINGS):
                continue
            read, what, returned = self._read(spot, owner), within(owner, spot), spot.reference.token in ends
            asked = Question(owner, read, check.difference, truth, backward=False, what=what, returned=returned)
            if spot.reference.shape != spot.candidate.shape:
                ruling = of_another_shape(spot)
            elif check.close is not None:
                ruling = self._classic(check, asked)
            elif rough and check.difference.rel_l2 > GROSS(epsilon(truth.dtype)):
                ruling = Ruling(Verdict.DIFFERS, Figures.of(check.difference), ())
            elif is_suspect(check.difference, truth.dtype, negligible=negligible(owner)) or contrasted(owner):
                ruling = self.settler.settle(asked)
            elif check.parts and not rough:
                asked, ruling = self.settler.in_parts(check, asked)
            else:
                continue
            self.masks |= ruling.rests_on("drowned")
            if ruling.verdict not in AGREEING:
                if not rough:
                    apart = ruling.rests_on("float64_differs", "one_side_in_float64")
                    if apart and any(one.pair is owner for one in found) and self.settler.is_spoilt(asked):
                        continue
                    ruling = self._explained(ruling, asked)
                    if check.close is None:
                        ruling = likened(ruling, asked, spot, self.settler)
                suspicion = suspicion_of(owner, Phase.FORWARD, value_at(spot), ruling, check)
                if ruling.verdict is Verdict.DIFFERS and check.close is None and moved and not rough:
                    suspicion = self._openings.moved(suspicion, asked.read, truth)
                found.append(suspicion)
        if rough:
            return found
        found = self._openings.explained(found)
        if all(check.close is None for check in self.forced.checks):
            found += sampled_values(self.settler, self._read, found)
        return sorted(found, key=lambda suspicion: suspicion.order)

    def _classic(self, check: Check, asked: Question) -> Ruling:
        """Rule as the user's own tolerance says; no rule can judge what the reference gives but once."""
        figures = Figures.of(check.difference)
        if check.close:
            return Ruling(Verdict.WITHIN_TOLERANCE, figures, (Evidence("within_tolerance"),))
        return self.settler.with_randomness(Ruling(Verdict.DIFFERS, figures, (Evidence("outside_tolerance"),)), asked)

    def _explained(self, ruling: Ruling, asked: Question) -> Ruling:
        """Return a ruling with the settings that differ as its cause, where setting them right mends the value."""
        owner = asked.pair
        cause = cause_between(owner, Phase.FORWARD)
        if ruling.verdict is not Verdict.DIFFERS or (cause and (cause.verified or cause.name != "settings")):
            return ruling
        if owner.unfed and not owner.misfed:
            ruling = ruling.resting_on(Evidence.of("not_given", names=list(owner.unfed)))
        found = found_by_setting(self.settler, asked, self.matches)
        if found is None or found.verified:
            return ruling if found is None else attrs.evolve(ruling, hint=found)
        return ruling.resting_on(not_verified(found))

    def _read(self, spot: Spot, owner: Pair) -> Reader:
        """Return what takes a value of a call's own code from what the call did alone.

        Where the reference's code only hands on what a child gave, it was fed with that: it adds nothing, no chance.
        """
        givers = self.alignment.giving(spot.reference)
        handed_on = any(owner.reference in call.ancestors() for call in givers)
        return value_reader(spot, self.trace.value(spot.reference) if handed_on else None)

    def backward(self, forward: Sequence[Suspicion]) -> list[Suspicion]:
        """Settle the suspects of the backward pass that no forward source explains."""
        excused = self.excused(forward)
        # What computes in a narrower type forward sends a gradient that is so much coarser.
        narrow = {s.pair.key for s in forward if s.verdict is Verdict.PRECISION}
        frozen = {match.candidate.module.path for match, _, _ in self.forced.frozen}
        cuts = Cuts(self.alignment, frozen)
        found: list[Suspicion] = []
        for check in self.forced.checks:
            expected = self.trace.gradient(check.spot.reference)
            dtype = np.dtype(np.float32) if expected is None else expected.dtype
            apart = is_suspect(check.difference, dtype, negligible=NEGLIGIBLE_SENT)
            suspect = apart if check.close is None else not check.close
            if check.backward and suspect and not self._only_compares(check):
                cut = cut_side(check.spot.reference, check.spot.candidate)
                fault = cuts.suspicion(check, cut, excused) if cut else self._gradient_fault(check, expected, excused)
                if fault is not None:
                    found.append(fault)
        if all(check.close is None for check in self.forced.checks):
            found += sampled_gradients(self.settler, [*forward, *found])
        found = [*of_inputs(self, excused | narrow | set(cuts.told)), *found]
        found = [with_cut(one, self.alignment) for one in found if cuts.told.get(one.pair.key, one) is one]
        # What no call does by itself is what the whole model does: where some code differs, that is why.
        whole = [one for one in found if one.ruling.rests_on("whole_model_only")]
        settled = any(one.verdict is Verdict.DIFFERS and one not in whole for one in (*forward, *found))
        left = [one for one in found if one not in whole] if settled or self._openings.reshapes else found
        return without_starved(left, self.forced)

    def _only_compares(self, check: Check) -> bool:
        """Return whether a gradient comes to a mask on one side alone: the other compares it, and needs none.

        What the mask was made of gets its gradient from other code, which is judged by itself.
        """
        nothing = check.difference.rel_l2 in (1, math.inf)
        return nothing and is_mask(self.trace.value(check.spot.reference))

    def excused(self, earlier: Sequence[Suspicion]) -> set[Key]:
        """Return the keys of the calls whose later differences follow from what is known of them already."""
        parting = [s.pair for s in earlier if s.verdict in (Verdict.DIFFERS, Verdict.STOCHASTIC)]
        # What is changed in place may be a view of a tensor of the code around, whose gradient then is another too.
        written = [
            one for pair in parting if "same" in pair.memory and (one := self.alignment.around(pair)) is not None
        ]
        # What is wrong in the code of one call may show in another one's gradients alone (there it is given zeros).
        again = [one for pair in parting for one in self.alignment.using(pair.candidate.path)]
        known = {pair.key for pair in (*parting, *written, *again)}
        root = self.alignment.pairs[0]
        # The code around a call that gives another shape by its own fault works on wrong shapes, too.
        reshaped = [s.pair for s in earlier if s.ruling.rests_on("other_output")]
        chosen = [pair for pair in self.unfit if not pair.misfed or contrasted(pair)] if parting else []
        faulty = [*reshaped, *chosen]
        around = [pair for pair in map(self.alignment.around, faulty) if pair is not None]
        # A loss may be made of an output that only one side has; else backward starts at what both have, if any.
        started = root.outputs and not self.loss
        bare = [root] if len(root.outputs) < len(root.reference.outputs) and not started else []
        resized = [one for one in self.alignment.pairs if one.unfit("outputs")] if parting else []
        return known | {pair.key for pair in (*self.unfit, *resized, *around, *bare)}

    def _gradient_fault(self, check: Check, expected: Array | None, excused: set[Key]) -> Suspicion | None:
        """Find whose code sent a wrong gradient: a call that took the tensor, or the code around them."""
        spot = check.spot
        token = spot.reference.token
        takers, suspects = senders(spot, self.forced, self.alignment)
        if any(pair.key in self.forced.unreached for pair in takers):
            return None
        known = {pair.key for pair in suspects} & excused  # a call that holds one of them sends what it sends
        unexcused = [pair for pair in suspects if known.isdisjoint(call.key for call in pair.candidate.subtree())]
        read = gradient_reader(token)
        for pair in unexcused:
            asked = Question(pair, read, check.difference, expected, what=within(pair, spot))
            ruling = self.settler.settle(asked)
            if ruling.verdict is Verdict.STOCHASTIC or ruling.is_narrow:
                return None
            if ruling.verdict is Verdict.DIFFERS and ruling.settled:
                if self.is_right(pair) or (self.leaks(pair, excused) and not cut_inside(pair, self.alignment)):
                    self.unproven = True
                    return None
                ruling = likened(ruling, asked, spot, self.settler)
                return suspicion_of(pair, Phase.BACKWARD, gradient_sent(pair, spot), ruling, check)
        return None if known else self._unexplained(check, suspects)

    def is_right(self, pair: Pair, *, uncast: bool = False) -> bool | None:
        """Return whether a pair is right as a whole, whatever gradients it holds inside; None where that is open."""
        if (key := (pair.key, uncast)) not in self._right:
            self._right[key] = right_as_a_whole(self.settler.bench, pair, uncast=uncast)
        return self._right[key]

    def leaks(self, pair: Pair, excused: set[Key]) -> bool:
        """Return whether what is known to be wrong inside a pair sends gradients that are not put right behind it.

        Put right are those of tensors that both sides give a call, unless these are no measure.
        """
        loose = self.alignment.loose
        inside = {call.key for call in pair.candidate.subtree() if call is not pair.candidate}
        within = [one for one in self.alignment.pairs if one.key in inside]
        if any(one.key in excused and (one.unfed or one.withheld) and not one.misfed for one in within):
            return True
        takers = [one for one in within if any(ours.token in loose for ours, _ in one.taken)]
        wrong = ({call.key for call in one.candidate.subtree()} for one in takers)
        return not excused.isdisjoint(set[Key]().union(*wrong))

    def _unexplained(self, check: Check, suspects: list[Pair]) -> Suspicion | None:
        """Rule on a gradient that every call gets right alone: the loss, or rounding, or something in between."""
        spot, apart, root = check.spot, check.difference, self.alignment.pairs[0]
        figures, eps = Figures.of(apart), epsilon(numpy_dtype(spot.reference.dtype))
        if apart.rel_l2 <= ACCUMULATED(eps) and check.close is None:
            return None
        recorded = is_recorded(self.settler.bench.reference)  # then no replay tells the loss from the model's own code
        ends = {leaf.token for leaf in root.reference.outputs}
        if self.loss and spot.reference.token in ends and not (recorded and suspects[1:]):
            ruling = ruling_on_sent(check, self.loss)
            return Suspicion(root, Phase.LOSS, value_at(spot, gradient=True), ruling, measured=check.measured)
        if any(map(self.settler.randomness.takes_numbers, suspects)):
            return None  # other numbers were drawn there: what is sent is judged by its distribution
        if check.close is None:
            rounding = self.settler.rounding(suspects, gradient_reader(spot.reference.token), apart)
            if rounding is not None:
                if rounding[1] or recorded:
                    return None
                # The candidate sends it in another precision; the reference is right.
                ruling = Ruling(Verdict.PRECISION, figures, (Evidence("narrow_gradient"),))
                return suspicion_of(rounding[0], Phase.BACKWARD, value_at(spot, gradient=True), ruling, check)
        if check.close is None and (
            apart.rel_l2 <= GROSS(eps) if recorded else self.is_right(root, uncast=True) is not False
        ):
            self.unproven = True  # a relu's input that cannot be fed may be zero but for rounding
            return None
        ruling = Ruling(Verdict.DIFFERS, figures, (Evidence("not_replayed" if recorded else "whole_model_only"),))
        pair = likely_sender(spot, suspects, self.forced, self.alignment) if recorded else (suspects or [spot.pair])[0]
        return suspicion_of(pair, Phase.BACKWARD, value_at(spot, gradient=True), ruling, check)
