"""Gather what one step of two recorded runs shows: findings, the compared tree, notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from padiff.alignment import Alignment
from padiff.forcing import Forced, RecordedSide
from padiff.judging._compared import compared_calls, coverage_of, matching_of
from padiff.judging._ends import loss_finding, unlike_inputs, unlike_shapes, unmatched_outputs
from padiff.judging._extra_calls import beside, of_called_again, of_extra_calls
from padiff.judging._findings import at_home, merged
from padiff.judging._gathered import Gathered
from padiff.judging._metrics import Measures
from padiff.judging._notes import new_notes, notes_of, other_bytes
from padiff.judging._optimizer_notes import setting_notes
from padiff.judging._parameters import constant_notes, parameter_findings
from padiff.judging._parts import part_notes
from padiff.judging._recorded._alike import likened_here
from padiff.judging._recorded._changed_weights import beside_changed_weights, else_of_changed_weights
from padiff.judging._recorded._cleared import cleared_alike
from padiff.judging._recorded._computed_in import computed_in
from padiff.judging._recorded._gradients import why_forward_only
from padiff.judging._recorded._leaps import Leaps
from padiff.judging._recorded._levels import Drift, drift_of, is_explained, timed
from padiff.judging._recorded._loss_scale import scaled_alike, with_one_scale
from padiff.judging._recorded._made_of import handed_on, makes_the_loss, untrained
from padiff.judging._recorded._meter import Measuring, Meter
from padiff.judging._recorded._micro_batches import in_micro_batches, of_other_counts
from padiff.judging._recorded._misplaced import misplaced
from padiff.judging._recorded._moved_weights import else_of_the_inputs, of_moved_weights
from padiff.judging._recorded._one_fault import (
    as_one_term,
    beside_equal_gradients,
    is_loss_alone,
    of_one_fault,
    of_the_model,
)
from padiff.judging._recorded._other_arguments import other_arguments
from padiff.judging._recorded._outcomes import outcomes, with_first
from padiff.judging._recorded._parameter_values import When
from padiff.judging._recorded._penalty import of_penalty, without_decay
from padiff.judging._recorded._script_notes import (
    unlike_buffers,
    unlike_casts,
    unlike_scripts,
    without_settings_seen,
)
from padiff.judging._recorded._state import (
    beside_unused,
    frozen_in,
    frozen_together,
    of_recorded_state,
    of_uncalled_state,
)
from padiff.judging._recorded._taken_back import TakenBack
from padiff.judging._recorded._uncompared import of_other_shapes, uncompared
from padiff.judging._recorded._update import gradients_apart, of_recorded_update
from padiff.judging._suspicion import Suspicion
from padiff.judging._tolerance import Rule
from padiff.parameters import Correspondence, PartAlone
from padiff.report import Figures, Finding, Note, Phase, Verdict


@attrs.define(eq=False)
class Recorded(Gathered):
    """What is known so far of two recorded runs."""

    by: Measuring
    measures: Measures
    taken_back: TakenBack
    last: Meter | None = None
    """What measured the step before."""
    sent: dict[str, float] = attrs.field(factory=dict)
    """The candidate's parameters -> how far apart rounding alone left their gradients so far, at most."""
    handed: float = 0.0
    """How far apart what the models gave to their scripts is at most, in the steps so far."""
    stepped: bool = False
    """Whether optimizers that both runs hold stepped before."""
    backward: bool = False
    """Whether gradients were compared."""
    forward_only: str | None = None
    """Why they were not, in words."""
    dropped: int = 0
    """How many matched calls were dropped, which begin or end elsewhere on the other side."""

    @property
    def rule(self) -> Rule | None:
        """Return the user's own rule, where one was given."""
        return self.by.rule

    def gather(
        self,
        step: int,
        sides: tuple[RecordedSide, RecordedSide],
        known: Correspondence,
        started: Meter,
        *,
        settled: bool = True,
    ) -> Correspondence:
        """Judge one step; return what belongs to what, without the calls that were matched by place and wrongly so.

        ``started`` is what measured the values before the step, as far as the correspondence rests on them. Where the
        weights are ``settled``, calls behind the optimizer's step may differ as these do by then: as long as something
        tells whether that step is right.
        """
        first, differed = not self.calls, self.differs
        given, kept = (step, sides, known, started), ([*self.notes], self.dropped, self.last)
        sides, scaled = with_one_scale(sides, known.alignment, step, self.taken_back)
        self.notes += [] if scaled is None or differed or scaled in self.notes else [scaled]
        traces = sides[0].trace, sides[1].trace
        why = why_forward_only(traces, known.alignment)
        self.backward |= why is None
        self.forward_only = None if self.backward else why
        meter = self._meter(sides, known, started, backward=why is None)
        meter.cleared = cleared_alike(meter, known)
        meter.computing = computed_in(meter.kept("gradient"), known)
        drifts = Drift() if first else drift_of(meter, known), drift_of(meter, known, "updated")
        # Where something was found before, that moved the weights, and no rounding.
        drift, after = (attrs.evolve(one, modules={}) if differed else one for one in drifts)
        drift = attrs.evolve(drift, handed=self.handed)
        leaps, told, known = self._forward(meter, known, drift, after if settled else drift)
        alignment, forced = known.alignment, Forced(leaps.checks)
        told += self._backward(leaps, known, backward=why is None)
        params = self._parameters(meter, known) if first else []
        told, harmless = outcomes(told, leaps, known, ruled=self.rule is not None)
        self.notes += new_notes(harmless, self.notes)
        found = self._found(step, leaps, with_first(told), known, params)
        extra, idle = of_extra_calls(alignment, traces, step, backward=why is None)
        self.notes += beside(self.notes, idle)
        found = of_other_counts(found, traces, extra, alignment)
        found = of_moved_weights(of_called_again(found, alignment, traces, meter.models), leaps)
        alone = why is None and is_loss_alone(found)
        if alone or not any(one.source for one in found):
            found = [beside_equal_gradients(one) for one in found] if alone else found
            before = self.taken_back.before(step)
            how: dict[str, Any] = {"agreed": self.stepped, "before": before}
            found += of_recorded_update(meter, known, self.ignored, step, self.sent, **how)
            if settled and not (differed or why or any(map(_differs, found)) or is_explained(meter, known)):
                self.notes, self.dropped, self.last = kept
                return self.gather(*given, settled=False)
            self.stepped |= all(trace.updated and trace.stepped_at is not None for trace in traces)
        self._settings(() if differed else found, [*setting_notes(meter.settings, known)])
        for path, apart in gradients_apart(meter, known) if why is None else ():
            self.sent[path] = max(self.sent.get(path, 0.0), apart)
        found = else_of_changed_weights(found, known)
        found = else_of_the_inputs(found)
        found = found if self.backward else of_other_shapes(found, alignment, step)
        found += uncompared(leaps, alignment, step)
        if differed or any(one.source for one in params):
            found = [attrs.evolve(one, source=False) for one in found]
        found = [*params, *found]
        found = of_penalty(beside_changed_weights(found, meter, known), meter, known)
        found, decayed = without_decay(found, meter, known)
        self.notes += [note for note in decayed if note not in self.notes]
        found = of_one_fault([scaled_alike(one, alignment, traces) for one in found], alignment)
        found = as_one_term(found, meter.models, alignment)
        self.findings += in_micro_batches([at_home(one, alignment) for one in found], traces)
        tolerated = self.rule is not None
        how = {"ignored": self.is_ignored, "tolerated": tolerated, "step": step}
        self.add_calls(compared_calls(alignment, forced, told, traces, unseen=leaps.unseen, **how))
        if first:
            self.notes += [
                *constant_notes(known),
                *notes_of(alignment, found, leaps.compared),
                *unlike_scripts(traces),
                *unlike_casts(alignment, meter.computing),
                *unlike_buffers(meter, known),
                *other_bytes(alignment, traces),
            ]
            self.mapping = matching_of(alignment, known, self.findings)
            self.coverage = coverage_of(traces[0], alignment, leaps.compared)
            if traces[0].loss is not None and traces[1].loss is not None:
                self.loss = traces[0].loss, traces[1].loss
        return known

    def _settings(self, found: Sequence[Finding], told: Sequence[Note]) -> None:
        """Keep what is said of optimizers' settings that differ, as long as no weights show them."""
        self.notes += [note for note in told if note not in self.notes]
        self.notes = without_settings_seen(self.notes, (*self.findings, *found))

    def _meter(
        self, sides: tuple[RecordedSide, RecordedSide], known: Correspondence, started: Meter, *, backward: bool
    ) -> Meter:
        """Return what measures the values of a step, with those under way that will be asked for."""
        meter = Meter(sides, self.by)
        if self.last is not None:
            meter.take_over(self.last, known)
        meter.begin(started)
        self.last = meter
        named: tuple[When, ...] = ("buffer", "gradient") if backward else ("buffer",)
        state = (both for when in named for both in meter.parameter_pairs(known, when))
        meter.ahead([*meter.value_pairs(known.alignment), *state])
        return meter

    def _forward(
        self, meter: Meter, known: Correspondence, drift: Drift, after: Drift
    ) -> tuple[Leaps, list[Suspicion], Correspondence]:
        """Return what differs forward, and the correspondence without calls that are matched, and wrongly so."""
        leaps = Leaps(meter, known.alignment, drift, after)
        told = list(leaps.forward())
        while wrong := misplaced(leaps, told):  # the fewer calls are matched, the more is seen at one around
            self.dropped += len(wrong)
            known = attrs.evolve(known, calls=known.alignment.without(wrong))
            leaps = Leaps(meter, known.alignment, drift, after)
            told = list(leaps.forward())
        for key, tied, note in list(other_arguments(leaps)):
            known = attrs.evolve(known, calls=known.alignment.without_input(key, tied))
            self.notes += [] if note in self.notes else [note]
        if known.alignment is not leaps.alignment:
            leaps = Leaps(meter, known.alignment, drift, after)
            told = list(leaps.forward())
        told_of = {note.kind for note in self.notes}
        self.notes += [Note(why, {"modules": [*at]}) for why, at in leaps.left_out.items() if why not in told_of]
        return leaps, told, known

    def _backward(self, leaps: Leaps, known: Correspondence, *, backward: bool) -> list[Suspicion]:
        """Return what differs backward, and in the models' state."""
        leaps.frozen = frozen_in(leaps, known)
        told = beside_unused(list(leaps.backward()), leaps, known) if backward else []
        for one in of_recorded_state(leaps, known, backward=backward):
            if isinstance(one, Note):
                self.notes.append(one)
            else:
                told.append(one)
        for kind in dict.fromkeys(leaps.magnified.values()):
            if not any(note.kind == kind for note in self.notes):
                paths = [pair.candidate.path for pair, how in leaps.magnified.items() if how == kind]
                self.notes.append(Note(kind, {"modules": paths}))
        return told

    def _found(
        self, step: int, leaps: Leaps, told: list[Suspicion], known: Correspondence, params: Sequence[Finding]
    ) -> list[Finding]:
        """Return the findings of a step about values, shapes, and the loss."""
        alignment, traces = known.alignment, leaps.meter.traces
        # Of ranks nobody may know how the parts of what the model was given make a whole.
        given = all(leaf.token in trace.values for trace in traces for leaf in trace.root.inputs)
        differs = any(one.verdict is Verdict.DIFFERS for one in told)
        shapes = [*unlike_shapes(alignment.pairs[0], step, differs=differs)] if given else []
        found = [*shapes, *unlike_inputs(Forced(leaps.checks), leaps.meter.of_spot, step)]
        models = leaps.meter.models
        # In execution order, those in front at which a difference arises: of one place the first is kept.
        ordered = sorted(_once(told), key=lambda one: (not one.arises, one.phase is not Phase.FORWARD, one.order))
        told = [likened_here(one, leaps) for one in ordered]
        judged = of_uncalled_state(told, self.judged(told, known, params, step), known, leaps)
        judged = frozen_together(judged, models)
        self.notes += [note for note in untrained(traces, alignment.pairs[0]) if note not in self.notes]
        ends = [*unmatched_outputs(alignment, step, partial(makes_the_loss, traces))]
        found += _before_backward([timed(one, alignment, traces) for one in judged], ends)
        size = self._outputs(leaps, alignment)
        if size is None:  # what the loss is made of shows in no output of both
            size = math.inf if any(one.source for one in found) else 0.0
        elif any(one.source and one.phase is Phase.FORWARD for one in found):
            size = max((size, *handed_on(leaps, alignment)))
        losses = traces[0].loss, traces[1].loss
        loss = loss_finding(losses, traces[0], alignment.pairs[0], self.rule, step, outputs=size)
        found += (of_the_model(one, models) for one in loss)
        found = [attrs.evolve(one, source=one.source and (not shapes or one in shapes)) for one in merged(found)]
        return found

    def _parameters(self, meter: Meter, known: Correspondence) -> list[Finding]:
        meter.ahead(meter.parameter_pairs(known, "before"))

        def counts(part: PartAlone) -> bool:
            return not part.is_idle(lambda parameter: meter.array(parameter, "gradient", ours=part.ours))

        self.notes += part_notes(known, self.ignored, counts)
        return parameter_findings(
            known,
            partial(meter.held, when="before"),
            self.ignored,
            copied=False,
            backward=True,
            rule=self.rule,
            measures=self.measures,
            frozen=False,
            alike=meter.alike,
            counts=counts,
        )

    def _outputs(self, leaps: Leaps, alignment: Alignment) -> float | None:
        """Return how far apart the outputs are, and keep that of the first step; None where none is compared."""
        sizes = [leaps.size(*leaves) for top in alignment.tops for leaves in top.made]
        found = [one for one in sizes if one is not None]
        if not found:
            return None
        worst = max(one.error for one in found)
        self.handed = max(self.handed, worst)
        if not self.calls:
            self.output = Figures(worst, max(one.difference.max_abs for one in found))
            within = [one.close for one in found if one.close is not None]
            self.output_within = all(within) if within else None
        hidden = (leaps.levels[top.key].error for top in alignment.tops if not top.made)
        return max((worst, *hidden))  # of what is compared with nothing what was made inside of it tells


def _before_backward(judged: Sequence[Finding], ends: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings with those of outputs in their place: from one of another shape gradients follow."""
    reshaped = any(one.rests_on("other_output") for one in ends)
    yield from (one for one in judged if one.phase is Phase.FORWARD)
    yield from ends
    for one in judged:
        if one.phase is not Phase.FORWARD:
            yield attrs.evolve(one, source=one.source and not (reshaped and one.phase is Phase.BACKWARD))


def _differs(one: Finding) -> bool:
    return one.verdict is Verdict.DIFFERS


def _once(told: Sequence[Suspicion]) -> list[Suspicion]:
    """Return values of which the vague ones are a source once: that which the backward pass met first.

    None of them is, of a call at which a gradient that was kept is one.
    """
    arising = [one for one in told if one.arises and one.phase is Phase.BACKWARD]
    vague = [one for one in arising if one.vague]
    known = {one.pair.key for one in arising if not one.vague}
    first = max((one for one in vague if one.pair.key not in known), key=lambda one: one.order, default=None)
    rest = [one for one in vague if one is not first]
    return [attrs.evolve(one, arises=False) if one in rest else one for one in told]
