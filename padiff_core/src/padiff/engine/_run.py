"""Go the whole way from two models to a report, one line a step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import cache, partial
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.engine._adapt import Prepared
from padiff.engine._backward_starts import backward_starts, check_starts
from padiff.engine._checks import check_candidate, check_reference, of_side
from padiff.engine._matching import Matching
from padiff.engine._merging import keep_as_given, merged
from padiff.engine._report import report_of
from padiff.engine._unhidden import unhidden
from padiff.engine._zeros import unproven
from padiff.errors import BackwardError, PluginWarning
from padiff.forcing import NotRecorded, Side
from padiff.judging import (
    Judge,
    Outcome,
    axis_notes,
    carried_notes,
    constant_notes,
    measures_of,
    merged_notes,
    naming_notes,
    notes_of_optimizers,
    parameter_findings,
    part_notes,
    reordered_notes,
    rule_of,
    special_notes,
    step_both,
    unregistered_notes,
    without_settings_seen,
)
from padiff.parameters import Correspondence, Specials, held_of, transfer
from padiff.progress import Progress
from padiff.recording import Task, arrays_of, exact
from padiff.refinement import (
    Evidence,
    aligned,
    led,
    with_batches_divided,
    with_calls_in_order,
    with_constants,
    with_dataflow,
    with_operations_matched,
    with_orders_borne_out,
    with_other_rows,
    with_sizes_put,
    without_early_ends,
    without_mismatches,
)
from padiff.report import Note, Report
from padiff.trace import Trace, ValueStore


class Run:
    """The steps of one diff, and what they show."""

    def __init__(
        self, prepared: Prepared, progress: Progress, stack: ExitStack, store: Callable[[], ValueStore]
    ) -> None:
        self.prepared = prepared
        self.reference, self.candidate = prepared.sides
        self.tasks, self.given, self.resolved = prepared.tasks, prepared.given, prepared.resolved
        self.padding = prepared.padding
        self.options, self.progress, self.stack = prepared.options, progress, stack
        self.store = store
        """What makes a place for recorded values: in shared memory where a worker reads them too."""
        self.begun = False
        """Whether a step was compared already: what is told of the models as they are was told."""
        self.correspondence: Correspondence | None = None
        self.as_given: bool | None = None
        """Whether the candidate keeps what it was given; None where that was not asked yet."""
        self.hidden: list[str] = []
        """The reference's parameters whose values may hide what is made of them."""
        self.unreached = False
        """Whether these are no zeros, and their gradients are."""
        self.unhidden = False
        """Whether its inputs are such that they hide no position."""
        self.idle: bool | None = None
        """Whether the optimizers moved no parameter in any step; None where there was none yet."""
        self.own: dict[str, NDArray[Any]] = {}
        """What the candidate held where it has the reference's constants until the diff ends."""
        stack.callback(self._with_own_constants)
        self.measures, self.rule = measures_of(self.options.tolerance), rule_of(self.options.tolerance)
        self.specials = Specials(self.reference.about, self.candidate.about)
        self.outcome = Outcome(
            self.reference.about,
            self.candidate.about,
            self.given,
            self.options,
            bool(self.resolved),
            self.measures,
            ignored=self.resolved.ignored,
        )

    def step(self, step: int) -> None:
        """Compare one run of both models; with optimizers, also one update.

        In evaluation mode a framework may have no backward pass (recurrent kernels); forward is then all there is.
        """
        try:
            self._stored(step)
        except BackwardError as error:
            training = self.reference.about.training or self.candidate.about.training
            wanted = training or self.options.phase == "backward" or self.options.optimizers
            if wanted and not isinstance(error, NotRecorded):
                raise
            why = str(error).splitlines()[0].removeprefix("the reference: ")
            self.forward_only(why if isinstance(error, NotRecorded) else f"in evaluation mode {why}")
            self._stored(step)

    def again(self, tasks: tuple[Task, Task]) -> Run:
        """Return a run of one step of the same models, not yet begun, in which no optimizer steps."""
        options = attrs.evolve(self.options, optimizers=False, steps=1)
        prepared = attrs.evolve(self.prepared, options=options, tasks=tasks)
        other = Run(prepared, self.progress, self.stack, self.store)
        other.as_given = bool(self.as_given)  # what the candidate holds by now it may have been given here
        return other

    def forward_only(self, why: str) -> None:
        """Leave the backward pass out from now on."""
        self.outcome.notes.append(Note("forward_only", {"why": why}))
        self.options = self.outcome.options = self.options.without_backward(why)
        self.tasks = _forward(self.tasks)

    def _stored(self, step: int) -> None:
        """Go the way with a place for values; once more where the reference was asked for another backward pass."""
        done = False
        while not done:
            with closing(self.store()) as store:
                done = self._step(step, store)

    def _step(self, step: int, store: ValueStore) -> bool:
        """Go the way of the data: record, match and transfer, align, refine, force, judge, step.

        Return False where the models have to run otherwise: from another start of the backward pass, or without it.
        """
        first = not self.begun
        if first:
            self._with_own_constants()
        matching = Matching(self.reference, self.candidate, self.specials, self.resolved)
        followed = self.correspondence is None and not matching.is_named
        trace = self.recorded(store, followed=followed)
        evidence = self.evidence(trace, store, followed=followed)
        if self.correspondence is None:
            keep_as_given(self, matching, evidence)
            self.correspondence = matching.matched(evidence)
        with_batches_divided(self.correspondence, evidence)
        trace = evidence.trace
        known = led(aligned(self.correspondence, evidence), evidence)
        starts = backward_starts(known.alignment.pairs[0], self.tasks, loss=self.given[0].loss)
        again = starts[0] != self.tasks[0].starts
        self.tasks = attrs.evolve(self.tasks[0], starts=starts[0]), attrs.evolve(self.tasks[1], starts=starts[1])
        if again:
            return False
        evidence.task = self.tasks[1]
        if first:
            known = with_constants(known, evidence)
        told = merged(self, with_orders_borne_out(with_calls_in_order(known, evidence), evidence), evidence)
        if told is None:
            return False
        known = without_mismatches(told, evidence)
        if self.options.transfer and first:
            known = with_dataflow(known, evidence)
        known = without_early_ends(with_sizes_put(with_other_rows(known, evidence), evidence), evidence)
        if first:
            self._tell_parameters(known, evidence.judged(known))
        if self.options.operations:
            known = with_operations_matched(known, evidence)
        self._note_axes(known)
        self.correspondence = known
        judge = evidence.judged(known)
        check_starts(self.tasks[1], judge)
        free = evidence.seen or evidence.free(known.axes)
        self.outcome.notes += evidence.notes
        self.outcome.gather(
            step, known, trace, free, judge, arrays_of(self.tasks[1]), cache(partial(unhidden, self, known, trace))
        )
        sides = evidence.reference, evidence.side(known.axes)
        ours, theirs = self.tasks
        tasks = ours, exact(ours, theirs, known.alignment.pairs[0].inputs)
        self.outcome.prove(step, sides, tasks, (trace, free), known, judge)
        if not self.outcome.differs:
            backward = self.options.backward
            self.hidden, self.unreached = unproven(known, self.reference, trace, backward=backward)
        if self.options.optimizers and self.options.backward:
            self._update(step, known, trace, judge)
        self.begun = True
        return True

    def begin(self, tasks: tuple[Task, Task]) -> None:
        """Go on from the reference's weights as they are now, on other tasks."""
        self.tasks = tasks if self.options.backward else _forward(tasks)
        if self.correspondence is not None:
            transfer(self.correspondence.matches, self.reference, self.candidate)

    def _with_own_constants(self) -> None:
        """Give the candidate back the constants that were wrong: they are the user's to put right."""
        if self.own:
            self.candidate.assign(self.own)
            self.own.clear()

    def recorded(self, store: ValueStore, *, followed: bool) -> Trace:
        """Run the reference."""
        self.progress.phase("running the reference")
        with of_side("reference", self.reference, self.tasks[0]):
            trace = self.reference.record(attrs.evolve(self.tasks[0], flow=followed), store)
        check_reference(self.reference, trace, backward=self.options.backward)
        return trace

    def evidence(self, trace: Trace, store: ValueStore, *, followed: bool) -> Evidence:
        """Return what gathers evidence on the candidate, beside the reference's trace."""

        def run(side: Side, task: Task) -> Trace:
            self.progress.phase("running the candidate")
            with of_side("candidate", self.candidate, task):
                free = side.record(task, store, values=False)
            check_candidate(self.candidate, free)
            self.progress.phase("forcing and judging")
            return free

        return Evidence(
            self.reference,
            self.candidate,
            *self.tasks,
            trace,
            run,
            self.measures,
            rule=self.rule,
            loss=self.given[0].loss,
            transfer=self.options.transfer,
            own=self.own,
            followed=followed,
        )

    def _tell_parameters(self, known: Correspondence, judge: Judge) -> None:
        """Report what has no counterpart."""
        self.outcome.findings += parameter_findings(
            known,
            partial(held_of, reference=self.reference, candidate=self.candidate),
            self.resolved.ignored,
            copied=self.options.transfer,
            backward=self.options.backward,
            rule=self.rule,
            measures=self.measures,
            own=self.own,
            frozen=False,
            counts=judge.counts,
        )
        self.outcome.notes += part_notes(known, self.resolved.ignored, judge.counts)
        self.outcome.notes += [*constant_notes(known), *naming_notes(known)]
        self.outcome.notes += [*reordered_notes(known), *carried_notes(known)]
        sides = self.reference, self.candidate
        self.outcome.notes += [*merged_notes(known, as_given=bool(self.as_given)), *unregistered_notes(sides)]
        if self.options.optimizers:
            # After the transfer, which stays; what steps do to buffers and gradients does not.
            for side in sides:
                self.stack.enter_context(side.preserved())

    def _note_axes(self, known: Correspondence) -> None:
        noted = any(note.kind in ("axis_order", "row_order") for note in self.outcome.notes)
        if known.axes and not noted:
            self.outcome.notes.extend(axis_notes(known))
            if self.options.operations:
                self.outcome.notes.append(Note("axis_order_operations"))

    def _update(self, step: int, known: Correspondence, trace: Trace, judge: Judge) -> None:
        """Let both optimizers step, and start the next step of both sides from the reference's values after it."""
        sides = self.reference, self.candidate
        ignored = self.resolved.ignored
        updates, moved = step_both(sides, self.given, known, trace, step, ignored, self.rule, self.measures)
        self.idle = not moved and self.idle is not False
        self.outcome.add(updates, judge.alignment)
        for note in notes_of_optimizers(self.given, known) if moved and not updates else ():
            self.outcome.notes += [] if note in self.outcome.notes else [note]
        left = {path: trace.array(key) for path, key in trace.buffers.items() if path not in trace.rewritten}
        fits = {path: one for path, one in left.items() if one.shape == self.reference.about.parameters[path].shape}
        self.reference.assign(fits)
        if step + 1 < self.options.steps and len(fits) < len(left):
            self.outcome.notes.append(Note("begun_anew", {"paths": sorted(left.keys() - fits.keys())}))
        transfer(known.matches, *sides)

    def report(self, notes: Sequence[Note], seconds: float) -> Report:
        """Write the report."""
        outcome, options = self.outcome, self.outcome.options
        if self.padding is not None and options.backward:
            outcome.findings = self.padding.in_loss(outcome.findings, loss=self.given[0].loss)
        if self.correspondence is not None:
            outcome.notes += special_notes(self.correspondence, copied=options.transfer, backward=options.backward)
        outcome.notes = without_settings_seen(outcome.notes, outcome.findings)
        if self.idle:
            outcome.notes.append(Note("idle_optimizers"))
        for said in self.measures.trouble:
            warnings.warn(said, PluginWarning, stacklevel=4)
            outcome.notes.append(Note("metric_failed", {"said": said.partition("\n")[0]}))
        return report_of(
            outcome,
            (self.reference, self.candidate),
            notes,
            options.tolerance,
            seconds,
            transfer=outcome.transfer if options.transfer else None,
            forward_only=options.forward_only,
            phase=options.phase,
            operations=options.operations,
            free_runs=outcome.free_runs,
        )


def _forward(tasks: tuple[Task, Task]) -> tuple[Task, Task]:
    first, second = (attrs.evolve(task, backward=False) for task in tasks)
    return first, second
