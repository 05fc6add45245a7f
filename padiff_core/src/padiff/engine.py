"""Answer the question: diff() goes the whole way from two models to a report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Model
from padiff.align import Alignment, Pair, align
from padiff.alone import Bench
from padiff.asked import Asked, check_optimizers
from padiff.compare import difference
from padiff.errors import BackwardError, InputError, UnusableReference
from padiff.exchange import exchanged
from padiff.explain import contrasts
from padiff.findings import finding_of, merged, place_of
from padiff.forced import Forced, force
from padiff.inputs import arguments, narrowed
from padiff.judge import Judge, Suspicion
from padiff.layers import CATALOGUE
from padiff.mapping import LayerMap, Resolved, resolve
from padiff.pairing import (
    Pairing,
    choose_layouts,
    copy_parameters,
    half_tied,
    named_alike,
    pair_parameters,
    parameter_findings,
)
from padiff.plugins import adapter_for
from padiff.progress import Progress, shown
from padiff.record import Task, first_nonfinite, is_finite, nonfinite_inputs, record
from padiff.report import Figures, Finding, Note, Phase, Place, Report, Transfer, Verdict
from padiff.store import ValueStore, temporary_store
from padiff.trace import Call, Leaf, Trace
from padiff.update import step_both
from padiff.weights import copy_link

__all__ = ["diff"]

Array = NDArray[Any]
_VICTIM = 1e-3
_NEAR = 3
_BY_PLACE = "same kind, shapes and place"
_GUESSED = (_BY_PLACE, "holds the same parameters", "holds mostly the same parameters")


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
) -> Report:
    """Tell whether two models compute the same, and if not, every place where they part and probably why.

    The reference is right by definition. ``inputs`` is a dict (keyword arguments) or a tuple (positional) of numpy
    arrays or any framework's tensors; ``candidate_inputs`` serves a candidate with another signature. ``loss`` is a
    function of the model's output, or a pair of them; without one every output gets a fixed random gradient.
    ``optimizers`` is a pair; both then step ``steps`` times from the same gradients. ``phase`` is ``both``, ``forward``
    or ``backward``. With ``transfer`` the reference's parameters are copied to the candidate, which keeps them;
    without, they are compared. ``mapping`` is a `LayerMap` or a dict of modules. Without ``tolerance`` the models' own
    rounding decides; with ``{"atol": ..., "rtol": ..., "compare_mode": "strict" | "mean"}`` exactly that rule does.

    Both models come back as they were, but for an asked-for transfer and optimizer steps. Raises `PadiffError`s for
    what cannot be compared: see `padiff.errors`.
    """
    started = time.perf_counter()
    asked = Asked(loss, optimizers, steps, phase, transfer, tolerance, seed)
    sides = adapter_for(reference).wrap(reference), adapter_for(candidate).wrap(candidate)
    for name, model in zip(("reference", "candidate"), sides, strict=True):
        _check_side(name, model)
    check_optimizers(asked.optimizers, sides[0].adapter, sides[1].adapter)
    resolved = resolve(mapping, *sides)
    given = arguments(inputs), arguments(inputs if candidate_inputs is None else candidate_inputs)
    tasks, notes = _tasks(sides, given, asked)
    with shown() as progress, ExitStack() as stack:
        engine = _Engine(sides, tasks, asked, resolved, progress, stack)
        for step in range(asked.steps):
            engine.step(step)
        return engine.report(notes, time.perf_counter() - started)


def _check_side(name: str, model: Model) -> None:
    """Raise `InputError` where a model is not built yet, or lies partly elsewhere."""
    try:
        for parameter in model.parameters().values():
            _ = parameter.shape  # what is not built yet has none
    except InputError as error:
        msg = f"in the {name}, {error}"
        raise InputError(msg) from None
    devices = model.device.split(",")
    if len(devices) > 1 and "cpu" in devices:
        msg = (
            f"the {name}'s parameters lie on several devices at once: {', '.join(devices)}.\n"
            "Hint: move the whole model to one device before diff()."
        )
        raise InputError(msg)


def _tasks(sides: tuple[Model, Model], given: Any, asked: Asked) -> tuple[tuple[Task, Task], list[Note]]:
    notes = []
    losses = asked.loss if isinstance(asked.loss, tuple | list) else (asked.loss, asked.loss)
    if len(losses) != 2 or not all(one is None or callable(one) for one in losses):
        msg = "loss is neither a function nor a pair of functions.\nHint: loss=(for_the_reference, for_the_candidate)."
        raise InputError(msg)
    tasks = []
    for model, (args, kwargs), loss in zip(sides, given, losses, strict=True):
        # The reference decides, so that both sides get the same bits.
        (args, kwargs), cast = narrowed((args, kwargs), sides[0])
        if cast and model is sides[0]:
            notes.append(Note("float64 inputs were cast to the dtype of the reference's parameters"))
        tasks.append(Task(args, kwargs, loss, asked.backward, asked.seed))
    return (tasks[0], tasks[1]), notes


class _Engine:
    """Run the steps of one diff and gather what they show."""

    def __init__(
        self, sides: tuple[Model, Model], tasks: tuple[Task, Task], asked: Asked, resolved: Resolved, progress: Progress, stack: ExitStack
    ) -> None:
        self.reference, self.candidate = sides
        self.tasks = tasks
        self.asked = asked
        self.resolved = resolved
        self.progress = progress
        self.stack = stack
        self.pairing: Pairing | None = None
        self.findings: list[Finding] = []
        self.notes: list[Note] = []
        self.counts: Counter[str] = Counter()
        self.transfer: Transfer | None = None
        self.output: Figures | None = None
        self.loss: tuple[float, float] | None = None

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
            self.notes.append(Note(f"compared forward only: in evaluation mode {str(error).splitlines()[0]}"))
            self.asked = attrs.evolve(self.asked, phase="forward")
            self.tasks = (attrs.evolve(self.tasks[0], backward=False), attrs.evolve(self.tasks[1], backward=False))
            with temporary_store() as store:
                self._step(step, store)

    def _step(self, step: int, store: ValueStore) -> None:
        self.progress.phase("running the reference")
        trace = record(self.reference, self.tasks[0], store)
        _check_reference(trace)
        if self.pairing is None:
            self.pairing = self._pair(trace, store)
            if self.asked.optimizers is not None:
                # After the transfer, which stays; what steps do to buffers and gradients does not.
                for model in (self.reference, self.candidate):
                    self.stack.enter_context(model.preserved())
        self.progress.phase("running the candidate")
        free = record(self.candidate, self.tasks[1], store, values=False)
        if not free.outputs:
            msg = (
                f"the candidate {type(self.candidate.native).__qualname__} returned no tensor.\n"
                "Hint: padiff compares what the model's forward returns."
            )
            raise InputError(msg)
        alignment = align(trace, free, self.pairing.matches, self.resolved.pairs)
        self.progress.phase("forcing and judging")
        judged = self._force(trace, free, alignment)
        if self.asked.transfer and step == 0:
            matches = exchanged(self.pairing.matches, judged.judge.forward(rough=True), judged.judge)
            if matches is not None:
                self.pairing.matches = matches
                copy_parameters(self.pairing)
                alignment = align(trace, free, matches, self.resolved.pairs)
                judged = self._force(trace, free, alignment)
        self._gather(step, trace, free, judged)
        self._excuse_idle(trace, judged.forced)
        self.findings = [self._located(_at_home(f, judged.judge.alignment), judged.judge.alignment) for f in self.findings]
        if self.asked.optimizers is not None and self.asked.backward:
            updates = step_both(
                self.reference,
                self.candidate,
                self.asked.optimizers,
                self.pairing.matches,
                trace,
                step,
                self.resolved.ignored,
                self.asked.rule,
            )
            self.findings += [self._located(finding, judged.judge.alignment) for finding in updates]
            self._carry_buffers(trace)

    def _pair(self, trace: Trace, store: ValueStore) -> Pairing:
        """Match the parameters, and copy or compare them."""
        fixed, backward = self.resolved.pairs, self.asked.backward
        pairing = named_alike(self.reference, self.candidate, fixed)
        if pairing is None:
            self.progress.phase("probing the candidate")
            probe = record(self.candidate, self.tasks[1], store, values=False)
            pairing = pair_parameters(self.reference, self.candidate, trace, probe, fixed)
            if self.asked.transfer:
                copy_parameters(pairing)
                if pairing.open:
                    alignment = align(trace, probe, pairing.matches, fixed)
                    choose_layouts(pairing, self._bench(trace, alignment, {}))
        elif self.asked.transfer:
            copy_parameters(pairing)
        self.findings += parameter_findings(
            pairing,
            self.resolved.ignored,
            copied=self.asked.transfer,
            backward=backward,
            rule=self.asked.rule,
        )
        return pairing

    def _bench(self, trace: Trace, alignment: Alignment, own: Mapping[tuple[int, int], Array]) -> Bench:
        adapters = self.reference.adapter, self.candidate.adapter
        return Bench(*adapters, trace, alignment, own, self.asked.backward, self.asked.seed)

    def _force(self, trace: Trace, free: Trace, alignment: Alignment) -> _Judged:
        """Run the candidate forced; where a composite ends elsewhere than its match, take them apart and try again."""
        first = self._judge(trace, alignment)
        rough = first.judge.forward(rough=True)
        doubtful = [p for s in rough if (p := _may_be_mismatched(s, rough, first.judge, trace, free)) is not None]
        if not doubtful:
            return first
        second = self._judge(trace, alignment.without(doubtful))
        seen = {_spot_key(s) for s in rough}
        fresh = [s for s in second.judge.forward(rough=True) if _spot_key(s) not in seen]
        wrong = [pair for pair in dict.fromkeys(doubtful) if not _spoils(pair, fresh, second.judge)]
        if not wrong:
            return first
        if len(wrong) == len(set(map(id, doubtful))):
            return second
        return self._judge(trace, alignment.without(wrong))

    def _judge(self, trace: Trace, alignment: Alignment) -> _Judged:
        assert self.pairing is not None
        forced = force(self.candidate, self.tasks[1], alignment, trace, self.pairing.matches, self.asked.rule)
        judge = Judge(self._bench(trace, alignment, forced.own), trace, forced, loss=self.tasks[0].loss is not None)
        return _Judged(judge, forced)

    def _gather(self, step: int, trace: Trace, free: Trace, judged: _Judged) -> None:
        """Turn what one step showed into findings, counts and notes."""
        judge, forward = judged.judge, judged.judge.forward()
        assert self.pairing is not None
        changed = {f.candidate.path for f in self.findings if f.phase is Phase.PARAMETER} | half_tied(self.pairing)
        backward = judge.backward(forward) if self.asked.backward else []
        state = judge.state([*forward, *backward])
        suspicions = sorted(self._of_phase([*forward, *backward, *state]), key=lambda s: s.order)
        found = []
        for suspicion in suspicions:
            ignored = self._is_ignored(suspicion.pair)
            explained = suspicion.pair.candidate.path in changed and not suspicion.pair.candidate.children
            source = suspicion.verdict is Verdict.DIFFERS and not ignored and not explained
            found.append(
                finding_of(suspicion, source=source, verdict=Verdict.IGNORED if ignored else None, step=step)
            )
        found += self._by_setting(judge, suspicions, step)
        found += self._loss_finding(trace, judged.forced, step) + self._unmatched_outputs(judge.alignment, step)
        found = merged(found)
        self.findings += found
        if any(f.source for f in found):
            self.findings += list(_victims(judge.alignment, trace, free, found, step))
        self._count(judge, suspicions)
        self.notes += [Note(text) for text in sorted(judge.notes)]
        self.notes += _setting_notes(judge.alignment, found)
        self.notes += _unmatched_notes(judge.alignment)
        if step == 0:
            self._measure(trace, free, judge.alignment)
            self.transfer = self._transferred(trace, judge.alignment, suspicions)

    def _located(self, finding: Finding, alignment: Alignment) -> Finding:
        """Return a finding about a parameter with the lines where its modules are called, or defined."""
        if finding.phase not in (Phase.PARAMETER, Phase.UPDATE):
            return finding
        calls = [pair.reference for pair in alignment.pairs] + alignment.left_reference
        others = [pair.candidate for pair in alignment.pairs] + alignment.left_candidate
        return attrs.evolve(
            finding,
            reference=_with_location(finding.reference, calls, self.reference),
            candidate=_with_location(finding.candidate, others, self.candidate),
        )

    def _excuse_idle(self, trace: Trace, forced: Forced) -> None:
        """Turn unmatched parameters that reach no output into notes: they change nothing that is computed."""
        if not self.asked.backward:
            return
        kept = []
        for finding in self.findings:
            side = "candidate" if _has(finding.evidence, "candidate") else "reference"
            if finding.phase is not Phase.PARAMETER or finding.verdict is not Verdict.UNMATCHED:
                kept.append(finding)
                continue
            place = finding.candidate if side == "candidate" else finding.reference
            path = _parameter_path(place, finding.what)
            model = self.candidate if side == "candidate" else self.reference
            parameter = next((p for p in model.parameters().values() if path in p.paths), None)
            reached = forced.reached if side == "candidate" else trace.parameter_gradients.keys()
            if parameter is None or not parameter.trainable or parameter.path in reached:
                kept.append(finding)
            else:
                self.notes.append(Note(f"{finding.evidence[0]}; it reaches no output", finding.reference, finding.candidate))
        self.findings = kept

    def _of_phase(self, suspicions: Sequence[Suspicion]) -> Iterator[Suspicion]:
        for suspicion in suspicions:
            if self.asked.phase != "backward" or suspicion.phase in (Phase.BACKWARD, Phase.LOSS):
                yield suspicion

    def _is_ignored(self, pair: Pair) -> bool:
        ignored = self.resolved.ignored
        return id(pair.candidate.module.native) in ignored or id(pair.reference.module.native) in ignored

    def _by_setting(self, judge: Judge, suspicions: Sequence[Suspicion], step: int) -> list[Finding]:
        """Return stochastic calls whose hyper-parameters differ: chance hides their values, not their settings."""
        found = []
        for suspicion in suspicions:
            pair = suspicion.pair
            differing = contrasts(pair.reference.module, pair.candidate.module)
            if suspicion.verdict is Verdict.STOCHASTIC and differing and not self._is_ignored(pair):
                found.append(attrs.evolve(finding_of(suspicion, source=True, step=step), verdict=Verdict.DIFFERS))
        return found

    def _loss_finding(self, trace: Trace, forced: Forced, step: int) -> list[Finding]:
        ours, theirs = trace.loss, forced.loss
        if ours is None or theirs is None:
            return []
        error = abs(ours - theirs)
        rule = self.asked.rule
        apart = not rule(np.float64(ours), np.float64(theirs)) if rule else error > _LOSS * max(abs(ours), abs(theirs))
        if not apart:
            return []
        return [
            Finding(
                verdict=Verdict.DIFFERS,
                phase=Phase.LOSS,
                reference=Place("", location=_defined(self.tasks[0].loss)),
                candidate=Place("", location=_defined(self.tasks[1].loss)),
                what="loss",
                figures=Figures(error / abs(ours) if ours else float("inf"), error),
                evidence=(f"{ours:.9g} in the reference, {theirs:.9g} in the candidate, from the same output",),
                source=True,
                step=step,
            )
        ]

    def _unmatched_outputs(self, alignment: Alignment, step: int) -> list[Finding]:
        root = alignment.of_reference(alignment.pairs[0].reference)
        assert root is not None
        kind = CATALOGUE.get(root.reference.module.kind or "")
        needed = kind.outputs if kind and kind.outputs is not None else None
        found = []
        for ours in (True, False):
            call = root.reference if ours else root.candidate
            tied = {call.outputs[pair[0 if ours else 1]].token for pair in root.outputs}
            side, other = ("reference", "candidate") if ours else ("candidate", "reference")
            for index, leaf in enumerate(call.outputs):
                if leaf.token in tied or (needed is not None and index >= needed):
                    continue
                text = f"the {side} returns {leaf.path or 'a tensor'} {leaf.dtype}{list(leaf.shape)}, the {other} nothing like it"
                found.append(
                    Finding(
                        verdict=Verdict.UNMATCHED,
                        phase=Phase.FORWARD,
                        reference=place_of(root.reference),
                        candidate=place_of(root.candidate),
                        what=f"output {leaf.path}".rstrip(),
                        evidence=(text,),
                        source=True,
                        step=step,
                    )
                )
        return found

    def _count(self, judge: Judge, suspicions: Sequence[Suspicion]) -> None:
        """Count the matched calls by their worst verdict, and what is left over."""
        worst = {id(s.pair): s.verdict for s in suspicions}
        apart = {id(check.spot.owner) for check in judge.forced.checks}
        for pair in judge.alignment.pairs:
            if self._is_ignored(pair):
                self.counts[Verdict.IGNORED.value] += 1
            else:
                plain = Verdict.ROUNDING if id(pair) in apart else Verdict.EQUAL
                self.counts[worst.get(id(pair), plain).value] += 1
        calls = judge.alignment.left_reference + judge.alignment.left_candidate
        left = sum(not judge.alignment.is_inside(call) for call in calls)
        if left:
            self.counts[Verdict.UNMATCHED.value] += left

    def _measure(self, trace: Trace, free: Trace, alignment: Alignment) -> None:
        """Measure what a user sees: outputs and loss of the free runs."""
        apart = [
            difference(trace.outputs[a], free.outputs[b])
            for a, b in alignment.pairs[0].outputs
            if a < len(trace.outputs) and b < len(free.outputs)
        ]
        if apart:
            self.output = Figures(max(d.rel_l2 for d in apart), max(d.max_abs for d in apart))
        if trace.loss is not None and free.loss is not None:
            self.loss = (trace.loss, free.loss)

    def _transferred(self, trace: Trace, alignment: Alignment, suspicions: Sequence[Suspicion]) -> Transfer | None:
        assert self.pairing is not None
        wrong = {id(s.pair) for s in suspicions if s.verdict is Verdict.DIFFERS and s.phase is Phase.FORWARD}
        verified: set[int] = set()
        unverified: dict[int, str] = {}
        for match in self.pairing.matches:
            users = alignment.using(match.candidate.module)
            called = any(pair.candidate.module.native is match.candidate.module.native for pair in users)
            fine = any(id(pair) not in wrong for pair in users)
            for link in match.links:
                parameter = link.candidate.parameter
                # One that is used by the code around its module (or not at all) shows in its gradient.
                used = called or link.reference.parameter.path in trace.parameter_gradients
                if fine and used and parameter.path not in self.pairing.undecided:
                    verified.add(id(parameter))
                else:
                    unverified[id(parameter)] = parameter.path
        gone = [f for f in self.findings if f.phase is Phase.PARAMETER and f.verdict is Verdict.UNMATCHED]
        return Transfer(
            copied=self.pairing.copied,
            verified=len(verified),
            unverified=tuple(path for key, path in unverified.items() if key not in verified),
            unmatched_reference=tuple(_parameter_path(f.reference, f.what) for f in gone if _has(f.evidence, "reference")),
            unmatched_candidate=tuple(_parameter_path(f.candidate, f.what) for f in gone if _has(f.evidence, "candidate")),
            settled=self.pairing.settled,
        )

    def _carry_buffers(self, trace: Trace) -> None:
        """Start the next step of both sides from the reference's buffers after this one."""
        assert self.pairing is not None
        parameters = self.reference.parameters()
        for path, key in trace.buffers.items():
            parameters[path].assign(trace.array(key))
        for _, link in self.pairing.links:
            if link.reference.parameter.buffer:
                copy_link(link)

    def report(self, notes: list[Note], seconds: float) -> Report:
        """Write the report."""
        order = sorted(range(len(self.findings)), key=lambda i: (self.findings[i].step, i))
        findings = [self.findings[i] for i in order]
        return Report(
            sources=tuple(f for f in findings if f.source),
            findings=tuple(findings),
            notes=tuple(dict.fromkeys([*notes, *self.notes])),
            transfer=self.transfer if self.asked.transfer else None,
            counts=dict(self.counts),
            output=self.output,
            loss=self.loss,
            reference=_named(self.reference),
            candidate=_named(self.candidate),
            environment={model.adapter.name: model.adapter.environment() for model in (self.reference, self.candidate)},
            seconds=seconds,
        )


@attrs.frozen
class _Judged:
    judge: Judge
    forced: Forced


_LOSS = 1e-5
"""Relative error of a float32 loss that rounding explains."""


def _check_reference(trace: Trace) -> None:
    if not trace.outputs:
        msg = (
            "the reference returned no tensor, so there is nothing to compare.\n"
            "Hint: padiff looks into tuples, lists, dicts, named tuples and dataclasses; return tensors in one of those."
        )
        raise UnusableReference(msg)
    finite = all(map(is_finite, trace.outputs))
    if finite and (trace.loss is None or np.isfinite(trace.loss)):
        return
    where = "in its loss"
    # An infinity inside may be meant (a mask), and so may one among the inputs, while the outputs are finite.
    call = None if finite else first_nonfinite(trace)
    if call is not None:
        place = place_of(call)
        where = f"first in the output of {call.path or 'the root'!r} ({call.module.class_name}), {place.location}"
    msg = (
        f"{'' if finite else nonfinite_inputs(trace)}"
        f"the reference computes NaN or Inf, {where}; nothing can be compared with that.\n"
        "Hint: give inputs and weights under which the reference is finite."
    )
    raise UnusableReference(msg)


def _at_home(finding: Finding, alignment: Alignment) -> Finding:
    """Return a finding whose side without counterpart is placed at the nearest module that has one."""
    for near, far in (("reference", "candidate"), ("candidate", "reference")):
        if getattr(finding, far).path is not None:
            continue
        home = getattr(finding, near).path or ""
        pairs = [(getattr(p, near).path, getattr(p, far)) for p in alignment.pairs]
        above = [(len(path), call) for path, call in pairs if not path or home == path or home.startswith(f"{path}.")]
        call = max(above, key=lambda found: found[0])[1]
        return attrs.evolve(finding, **{far: place_of(call)})
    return finding


def _with_location(place: Place, calls: Sequence[Call], model: Model) -> Place:
    if place.path is None or place.location is not None:
        return place
    call = next((call for call in calls if call.path == place.path), None)
    if call is not None:
        return attrs.evolve(place_of(call), class_name=place.class_name)
    module = model.modules().get(place.path)
    definition = None if module is None else module.definition
    return attrs.evolve(place, location=f"{definition[0]}:{definition[1]}" if definition else None)


def _may_be_mismatched(
    suspicion: Suspicion, all_of_them: Sequence[Suspicion], judge: Judge, trace: Trace, free: Trace
) -> Pair | None:
    """Return the pair whose match is in doubt: at its exit it may end elsewhere, at its entry be another call."""
    spot = suspicion.spot
    if spot is None or suspicion.verdict not in (Verdict.DIFFERS, Verdict.PRECISION):
        return None
    pair = spot.pair
    if pair.why not in _GUESSED or pair.candidate.parent is None or pair.reference.parent is None:
        return None
    same_kind = pair.reference.module.kind == pair.candidate.module.kind is not None
    if spot.what == "input":
        return pair if pair.why == _BY_PLACE and not pair.candidate.children else None
    if pair.reference.children or pair.candidate.children or not same_kind:
        return pair
    around = judge.around(pair)
    if any(other.pair is around and other.order > suspicion.order for other in all_of_them):
        # What follows is wrong too, though it was fed: the reference's value was put in at another point.
        return pair
    return pair if _ends_elsewhere(suspicion, judge, trace, free) else None


def _ends_elsewhere(suspicion: Suspicion, judge: Judge, trace: Trace, free: Trace) -> bool:
    """Return whether a module's output is what comes a little later on the other side: a fused activation."""
    pair, spot = suspicion.pair, suspicion.spot
    assert spot is not None
    runs = judge.settler.runs(pair, "float64")
    local = None if runs.candidate is None else runs.candidate.observed.spots.get(spot.key)
    if local is not None:
        for leaf in _next_leaves(trace, pair.reference, spot.reference):
            value = trace.value(leaf)
            if value is not None and difference(value, local).rel_l2 < _VICTIM:
                return True
    whole = trace.samples.get(spot.reference.token)
    own = pair.candidate.outputs[0] if pair.candidate.outputs else spot.candidate
    later = (free.samples.get(leaf.token) for leaf in _next_leaves(free, pair.candidate, own))
    return whole is not None and any(s is not None and difference(whole, s).rel_l2 < _VICTIM for s in later)


def _next_leaves(trace: Trace, call: Call, output: Leaf) -> Iterator[Leaf]:
    """Yield the tensors of the next few calls that look like the output and are not it."""
    for later in trace.calls[call.index + 1 : call.index + 1 + _NEAR]:
        for leaf in (*later.inputs, *later.outputs):
            if leaf.shape == output.shape and leaf.token != output.token:
                yield leaf


def _spot_key(suspicion: Suspicion) -> tuple[Any, ...]:
    spot = suspicion.spot
    return (None,) if spot is None else (spot.what, spot.reference.token, id(spot.pair))


def _spoils(pair: Pair, fresh: Sequence[Suspicion], judge: Judge) -> bool:
    """Return whether, with a pair taken apart, the difference only shows up further on: then it was the pair's."""
    around = judge.around(pair)
    start = pair.candidate.index
    after = [s for s in fresh if s.pair is around and (s.order >= start or s.spot is None or s.spot.what == "output")]
    return bool(after)


def _victims(
    alignment: Alignment, trace: Trace, free: Trace, found: Sequence[Finding], step: int
) -> Iterator[Finding]:
    """Yield the calls whose output in the free run carries a difference that arose before."""
    sources = {f.candidate.path for f in found if f.source}
    seen: set[str] = set()
    for pair in alignment.pairs:
        if pair.candidate.path in sources or pair.candidate.path in seen:
            continue
        for a, b in pair.outputs:
            ours = trace.samples.get(pair.reference.outputs[a].token)
            theirs = free.samples.get(pair.candidate.outputs[b].token)
            if ours is None or theirs is None or ours.shape != theirs.shape:
                continue
            apart = difference(ours, theirs)
            if apart.rel_l2 > _VICTIM:
                seen.add(pair.candidate.path)
                yield Finding(
                    verdict=Verdict.DIFFERS,
                    phase=Phase.FORWARD,
                    reference=place_of(pair.reference),
                    candidate=place_of(pair.candidate),
                    what="output in the free run",
                    figures=Figures(apart.rel_l2, apart.max_abs),
                    evidence=("right when fed from the reference; figures from a sample of elements",),
                    step=step,
                )
                break


def _setting_notes(alignment: Alignment, found: Sequence[Finding]) -> Iterator[Note]:
    """Yield hyper-parameters that differ without effect."""
    named = {f.candidate.path for f in found}
    for pair in alignment.pairs:
        if pair.candidate.path in named:
            continue
        for contrast in contrasts(pair.reference.module, pair.candidate.module):
            yield Note(f"{contrast}; no effect here", place_of(pair.reference), place_of(pair.candidate))


def _unmatched_notes(alignment: Alignment) -> Iterator[Note]:
    """Yield the calls without counterpart; the calls around them agree, or are findings."""
    for side, calls in (("reference", alignment.left_reference), ("candidate", alignment.left_candidate)):
        for call in (call for call in calls if not alignment.is_inside(call)):
            place = place_of(call)
            text = f"only the {side} calls {call.path!r}; judged with the code around it"
            yield Note(text, place, None) if side == "reference" else Note(text, None, place)


def _parameter_path(place: Place, what: str) -> str:
    name = what.rpartition(" ")[2]
    return f"{place.path}.{name}" if place.path else name


def _has(evidence: Sequence[str], side: str) -> bool:
    return any(text.startswith(f"the {side} has") for text in evidence)


def _defined(function: Callable[..., Any] | None) -> str | None:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None


def _named(model: Model) -> str:
    return f"{model.adapter.name}: {type(model.native).__qualname__}"

