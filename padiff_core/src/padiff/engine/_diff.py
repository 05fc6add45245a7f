"""Answer the question: diff() goes the whole way from two models to a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.adapter import Model
from padiff.alignment import Alignment, LayerMap, Resolved, align, resolve, turns, with_operations
from padiff.engine._checks import (
    check_candidate,
    check_inputs,
    check_reference,
    check_side,
    dtype_notes,
    finiteness_notes,
    of_side,
    sameness_notes,
    with_known_options,
)
from padiff.errors import BackwardError, InputError, PluginWarning
from padiff.forcing import Bench, LocalSide, force
from padiff.isolation import operating, served, wrapped
from padiff.judging import (
    Judge,
    Judged,
    Outcome,
    asking,
    measures_of,
    parameter_findings,
    rule_of,
    shown_rule,
    special_notes,
    step_both,
)
from padiff.options import Asked, check_optimizers
from padiff.parameters import (
    Pairing,
    Specials,
    UnitMatch,
    copy_link,
    copy_parameters,
    defined_alike,
    named_alike,
    pair_parameters,
    put_back,
    values_of,
)
from padiff.progress import Progress, shown
from padiff.recording import Task, arguments, narrowed, turned
from padiff.refinement import choose_layouts, exchanged, exchanged_by_value, judge_with_doubts
from padiff.report import Note, Report
from padiff.trace import Key, Trace, ValueStore, temporary_store

__all__ = ["diff"]

Array = NDArray[Any]

_SIDES = ("reference", "candidate")


@with_known_options
def diff(
    reference: Any,
    candidate: Any,
    inputs: Any,
    *,
    candidate_inputs: Any = None,
    loss: Any = None,
    optimizers: Any = None,
    steps: int = 1,
    phase: str = "both",
    transfer: bool = True,
    mapping: LayerMap | Mapping[Any, Any] | None = None,
    tolerance: Mapping[str, Any] | None = None,
    seed: int = 0,
    operations: bool = False,
) -> Report:
    """Tell whether two models compute the same, and if not, every place where they part and probably why.

    The reference is right by definition. ``inputs`` is a dict (keyword arguments) or a tuple (positional) of numpy
    arrays or any framework's tensors; ``candidate_inputs`` serves a candidate with another signature. ``loss`` is a
    function of the model's output, or a pair of them; without one every output gets a fixed random gradient.
    ``optimizers`` is a pair; both then step ``steps`` times from the same gradients. ``phase`` is ``both``, ``forward``
    or ``backward``. With ``transfer`` the reference's parameters are copied to the candidate, which keeps them;
    without, they are compared. ``mapping`` is a `LayerMap` or a dict of modules. Without ``tolerance`` the models' own
    rounding decides; with ``{"atol": ..., "rtol": ..., "compare_mode": "strict" | "mean"}`` exactly that rule does,
    or with ``{"metric": name or `Metric`, "min": ..., "max": ...}`` bounds on a metric. With ``operations`` the
    functions, operators and tensor methods that the models' own code calls are compared one by one, as modules are.

    Both models come back as they were, but for an asked-for transfer and optimizer steps. Raises `PadiffError`s for
    what cannot be compared: see `padiff.errors`.
    """
    started = time.perf_counter()
    asked = Asked(loss, optimizers, steps, phase, transfer, tolerance, seed, operations)
    with served(reference, candidate):
        with of_side("reference"):
            ours = wrapped(reference)
        with of_side("candidate"):
            theirs = wrapped(candidate)
        sides = ours, theirs
        for name, model in zip(_SIDES, sides, strict=True):
            check_side(name, model)
        asked = _with_optimizers(asked, sides)
        asked, notes = _within_reach(asked, sides)
        if asked.operations:
            sides = operating(sides[0]), operating(sides[1])
        resolved = resolve(mapping, *sides)
        given = arguments(inputs), arguments(inputs if candidate_inputs is None else candidate_inputs)
        tasks, cast = _tasks(sides, given, asked)
        for name, model, task in zip(_SIDES, sides, tasks, strict=True):
            check_inputs(name, model, task)
        notes += [*sameness_notes(ours, theirs), *dtype_notes(ours, theirs), *cast]
        notes += finiteness_notes(theirs, transfer=asked.transfer)
        with shown() as progress, ExitStack() as stack:
            engine = _Engine(sides, tasks, asked, resolved, progress, stack)
            for step in range(asked.steps):
                engine.step(step)
            return engine.report(notes, time.perf_counter() - started)


def _with_optimizers(asked: Asked, sides: tuple[Model, Model]) -> Asked:
    """Return what was asked for, with optimizers that were named found where their models are."""
    if asked.optimizers is None:
        return asked
    found = tuple(
        model.optimizer(given, side) for side, (model, given) in enumerate(zip(sides, asked.optimizers, strict=True))
    )
    check_optimizers(found, sides[0].adapter, sides[1].adapter)
    return attrs.evolve(asked, optimizers=found)


def _within_reach(asked: Asked, sides: tuple[Model, Model]) -> tuple[Asked, list[Note]]:
    """Return what was asked for as far as both adapters offer it, and a note where that is less.

    Raises `InputError` where the backward pass was asked for by name and one side has none.
    """
    without = dict.fromkeys(side.adapter.name for side in sides if "gradients" not in side.adapter.capabilities)
    if not without or not asked.backward:
        return asked, []
    lacking = f"the {' and the '.join(without)} adapter does not offer gradients"
    if asked.phase == "backward" or asked.optimizers is not None:
        msg = f"the backward pass was asked for, and {lacking}.\nHint: phase='forward', without optimizers."
        raise InputError(msg)
    return asked.without_backward(lacking), [Note("forward_only", {"why": lacking})]


def _is_loss(value: Any) -> bool:
    """Return whether a value is a function, or names one as ``module:function``."""
    return value is None or callable(value) or (isinstance(value, str) and ":" in value)


def _tasks(sides: tuple[Model, Model], given: Any, asked: Asked) -> tuple[tuple[Task, Task], list[Note]]:
    notes = []
    losses = asked.loss if isinstance(asked.loss, tuple | list) else (asked.loss, asked.loss)
    if len(losses) != 2 or not all(map(_is_loss, losses)):
        msg = "loss is neither a function nor a pair of functions.\nHint: loss=(for_the_reference, for_the_candidate)."
        raise InputError(msg)
    tasks = []
    for side, (model, (args, kwargs), loss) in enumerate(zip(sides, given, losses, strict=True)):
        # The reference decides, so that both sides get the same bits.
        (args, kwargs), cast = narrowed((args, kwargs), sides[0])
        if cast and model is sides[0]:
            notes.append(Note("inputs_cast"))
        tasks.append(Task(args, kwargs, model.loss(loss, side), asked.backward, asked.seed))
    return (tasks[0], tasks[1]), notes


class _Engine:
    """Run the steps of one diff and gather what they show."""

    def __init__(
        self,
        sides: tuple[Model, Model],
        tasks: tuple[Task, Task],
        asked: Asked,
        resolved: Resolved,
        progress: Progress,
        stack: ExitStack,
    ) -> None:
        self.reference, self.candidate = sides
        self.sides = LocalSide(sides[0]), LocalSide(sides[1])
        losses = asked.loss if isinstance(asked.loss, tuple | list) else (asked.loss, asked.loss)
        self.given = [
            one.prepare(loss, None, index=i) for i, (one, loss) in enumerate(zip(self.sides, losses, strict=True))
        ]
        self.tasks = tasks
        self.asked = asked
        self.resolved = resolved
        self.progress = progress
        self.stack = stack
        self.pairing: Pairing | None = None
        self.turned = False
        self.measures = measures_of(asked.tolerance)
        self.rule = rule_of(asked.tolerance)
        self.specials = Specials(*sides)
        self.outcome = Outcome(*sides, tasks, asked, resolved, self.measures)

    def step(self, step: int) -> None:
        """Compare one run of both models; with optimizers, also one update.

        In evaluation mode a framework may have no backward pass (recurrent kernels); forward is then all there is.
        """
        try:
            with temporary_store() as store:
                self._step(step, store)
        except BackwardError as error:
            training = any(model.modules()[""].training for model in (self.reference, self.candidate))
            if training or self.asked.phase == "backward" or self.asked.optimizers is not None:
                raise
            why = f"in evaluation mode {str(error).splitlines()[0].removeprefix('the reference: ')}"
            self.outcome.notes.append(Note("forward_only", {"why": why}))
            self.asked = self.asked.without_backward(why)
            self.tasks = (attrs.evolve(self.tasks[0], backward=False), attrs.evolve(self.tasks[1], backward=False))
            self.outcome.asked, self.outcome.tasks = self.asked, self.tasks
            with temporary_store() as store:
                self._step(step, store)

    def _step(self, step: int, store: ValueStore) -> None:
        self.progress.phase("running the reference")
        with of_side("reference", self.reference, self.tasks[0]):
            trace = self.sides[0].record(self.tasks[0], store)
        check_reference(self.reference, trace)
        if self.pairing is None:
            self.pairing, free = self.specials.retried(lambda: self._pair(trace, store))
            if self.asked.optimizers is not None:
                # After the transfer, which stays; what steps do to buffers and gradients does not.
                for model in (self.reference, self.candidate):
                    self.stack.enter_context(model.preserved())
        else:
            free = self._run_candidate(store)
        free, alignment = self._aligned(trace, free, self.pairing.matches, store)
        self.progress.phase("forcing and judging")
        judged = self._judged(trace, free, alignment)
        if self.asked.transfer and step == 0:
            order = exchanged(self.pairing.matches, judged.judge.forward(rough=True), judged.judge)
            self.pairing.undecided += order.undecided
            if order.matches is not None:
                self.pairing.matches = order.matches
                copy_parameters(self.pairing)
                free, alignment = self._aligned(trace, self._run_candidate(store), order.matches, store)
                judged = self._judged(trace, free, alignment)
        if self.asked.operations and not self.turned:
            # The modules are matched beyond doubt by now.
            judged = self._judged(trace, free, with_operations(judged.judge.alignment, trace, free))
        self.outcome.gather(step, self.pairing, trace, free, judged)
        if self.asked.optimizers is not None and self.asked.backward:
            updates = step_both(
                self.reference,
                self.candidate,
                self.asked.optimizers,
                self.pairing.matches,
                trace,
                step,
                self.resolved.ignored,
                self.rule,
                self.measures,
            )
            self.outcome.add(updates, judged.judge.alignment)
            self._carry_buffers(trace)

    def _run_candidate(self, store: ValueStore) -> Trace:
        """Run the candidate freely, as a user would."""
        self.progress.phase("running the candidate")
        with of_side("candidate", self.candidate, self.tasks[1]):
            free = self.sides[1].record(self.tasks[1], store, values=False)
        check_candidate(self.candidate, free)
        return free

    def _pair(self, trace: Trace, store: ValueStore) -> tuple[Pairing, Trace]:
        """Match the parameters, and copy or compare them; return the candidate's free run too.

        What names do not tell the order of the calls does, which only a run shows. So the candidate runs with a guess
        copied to it, and again only where its calls refute the guess.
        """
        fixed, transfer = self.resolved.pairs, self.asked.transfer
        pairing = named_alike(self.reference, self.candidate, fixed, self.specials)
        if pairing is None:
            pairing, free = self._ordered(trace, store)
        else:
            if transfer:
                copy_parameters(pairing)
            free = self._run_candidate(store)
        self.outcome.findings += parameter_findings(
            pairing,
            self.resolved.ignored,
            copied=transfer,
            backward=self.asked.backward,
            rule=self.rule,
            measures=self.measures,
        )
        return pairing, free

    def _ordered(self, trace: Trace, store: ValueStore) -> tuple[Pairing, Trace]:
        """Match the parameters with the order of the calls, and copy them; return the candidate's free run too."""
        fixed, transfer = self.resolved.pairs, self.asked.transfer
        guess = defined_alike(self.reference, self.candidate, fixed, self.specials) if transfer else None
        before = [] if guess is None else values_of(guess)
        try:
            if guess is not None:
                copy_parameters(guess)
            free = self._run_candidate(store)
            pairing = pair_parameters(self.reference, self.candidate, trace, free, fixed, self.specials)
            if not transfer:
                pairing.matches = exchanged_by_value(pairing.matches, trace, free)
            right = not transfer or (guess is not None and guess.ties() == pairing.ties())
        except BaseException:
            put_back(before)
            raise
        if right:
            pairing.copied = 0 if guess is None else guess.copied
            return pairing, free
        put_back(before)
        copy_parameters(pairing)
        if pairing.ambiguous:
            _, alignment = self._aligned(trace, free, pairing.matches, store)
            choose_layouts(pairing, self._bench(trace, alignment, {}))
        return pairing, self._run_candidate(store)

    def _aligned(
        self, trace: Trace, free: Trace, matches: Sequence[UnitMatch], store: ValueStore
    ) -> tuple[Trace, Alignment]:
        """Match the calls; where images lie otherwise on the two sides, turn the candidate and run it once more."""
        alignment = align(trace, free, [match.modules for match in matches], self.resolved.pairs)
        found = turns(alignment)
        if found:
            self.candidate = turned(self.candidate, found)
            self.sides = self.sides[0], self.sides[1].permuted(found)
            self.outcome.notes.append(Note("axis_order"))
            if self.asked.operations:
                self.outcome.notes.append(Note("axis_order_operations"))
            self.turned = True
            free = self._run_candidate(store)
            alignment = align(trace, free, [match.modules for match in matches], self.resolved.pairs)
        return free, alignment

    def _bench(self, trace: Trace, alignment: Alignment, own: Mapping[tuple[Key, int], Array]) -> Bench:
        return Bench(*self.sides, trace, alignment, own, self.asked.backward, self.asked.seed)

    def _judged(self, trace: Trace, free: Trace, alignment: Alignment) -> Judged:
        """Run the candidate forced and judge what it shows."""
        assert self.pairing is not None
        matches = self.pairing.matches

        def judge(alignment: Alignment) -> Judged:
            ask = asking(self.rule, self.measures)
            forced = force(self.sides[1], self.tasks[1], alignment, trace, matches, ask)
            bench = self._bench(trace, alignment, forced.own)
            loss = self.given[0].loss
            return Judged(Judge(bench, trace, forced, loss=loss, measures=self.measures), forced)

        return judge_with_doubts(judge, trace, free, alignment)

    def _carry_buffers(self, trace: Trace) -> None:
        """Start the next step of both sides from the reference's buffers after this one."""
        assert self.pairing is not None
        parameters = self.reference.parameters()
        for path, key in trace.buffers.items():
            parameters[path].assign(trace.array(key))
        for _, link in self.pairing.links:
            if link.buffer:
                copy_link(link)

    def report(self, notes: list[Note], seconds: float) -> Report:
        """Write the report."""
        outcome = self.outcome
        if self.pairing is not None:
            copied, backward = self.asked.transfer, self.asked.backward
            outcome.notes += special_notes(self.pairing, copied=copied, backward=backward)
        for said in self.measures.trouble:
            warnings.warn(said, PluginWarning, stacklevel=4)
            outcome.notes.append(Note("metric_failed", {"said": said.partition("\n")[0]}))
        findings = sorted(outcome.findings, key=lambda finding: finding.step)
        return Report(
            sources=tuple(f for f in findings if f.source),
            findings=tuple(findings),
            notes=tuple(dict.fromkeys([*notes, *outcome.notes])),
            transfer=outcome.transfer if self.asked.transfer else None,
            forward_only=self.asked.forward_only,
            counts=outcome.counts,
            output=outcome.output,
            output_within=outcome.output_within,
            loss=outcome.loss,
            reference=_named(self.reference),
            candidate=_named(self.candidate),
            environment=_environment(self.reference, self.candidate),
            seconds=seconds,
            phase=self.asked.phase,
            tolerance=shown_rule(self.asked.tolerance),
            calls=tuple(outcome.calls),
            mapping=outcome.mapping,
        )


def _environment(reference: Model, candidate: Model) -> dict[str, Mapping[str, str]]:
    """Return both sides' environments, by framework, and by side where two of one framework differ."""
    ours, theirs = reference.adapter, candidate.adapter
    found = ours.environment(), theirs.environment()
    if ours.name == theirs.name and found[0] != found[1]:
        return {f"{ours.name} (reference)": found[0], f"{theirs.name} (candidate)": found[1]}
    return {ours.name: found[0], theirs.name: found[1]}


def _named(model: Model) -> str:
    return f"{model.adapter.name}: {type(model.native).__qualname__}"
