"""Gather what the steps of a diff showed: findings, notes, counts, figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import attrs

from padiff.alignment import Alignment, Pair
from padiff.forcing import Given, Side, Spot, is_recorded
from padiff.judging._compared import compared_calls, downstream, matching_of, missing_path, missing_paths
from padiff.judging._ends import (
    differing_where,
    loss_finding,
    makes_the_loss,
    of_one_loss,
    places_of_losses,
    unlike_inputs,
    unmatched_outputs,
)
from padiff.judging._findings import at_home, finding_of, merged, with_location
from padiff.judging._forced._cause_search import with_uncalled_named
from padiff.judging._forced._harmless import harmless, hidden_alone, is_hidden
from padiff.judging._forced._judge import Judge
from padiff.judging._forced._numbers import differing_numbers
from padiff.judging._forced._parts import reach_nothing
from padiff.judging._forced._recomputed import recomputed_otherwise
from padiff.judging._forced._soundness import (
    of_one_distribution,
    prove,
    unexplained_finding,
    unrepeatable_finding,
    without_casts,
)
from padiff.judging._forced._state import of_rewritten, of_state
from padiff.judging._forced._unread import unread_inputs
from padiff.judging._forced._wholes import Ends, Gradients, Runs
from padiff.judging._gathered import Gathered
from padiff.judging._metrics import Measures
from padiff.judging._notes import harmless_note, hidden_note, new_notes, notes_of, tf32_notes
from padiff.judging._suspicion import Suspicion
from padiff.judging._tolerance import rule_of, rule_of_numbers
from padiff.kinds import CATALOGUE
from padiff.numerics import Array, difference
from padiff.options import DiffOptions
from padiff.parameters import Correspondence
from padiff.recording import Task
from padiff.report import Figures, Finding, FreeRuns, Note, Phase, Transfer, Verdict
from padiff.trace import Description, Trace, contrasts, samples_otherwise, temporary_store


@attrs.define(eq=False)
class Outcome(Gathered):
    """What is known so far of a diff."""

    reference: Description
    candidate: Description
    given: tuple[Given, Given]
    options: DiffOptions
    mapped: bool
    """Whether the user said what belongs to what: that is taken at its word."""
    measures: Measures = attrs.field(factory=Measures)
    transfer: Transfer | None = None
    free_runs: FreeRuns | None = None

    def gather(
        self,
        step: int,
        known: Correspondence,
        trace: Trace,
        free: Trace,
        judge: Judge,
        theirs: Sequence[Array],
        unhidden: Callable[[], Outcome | None],
    ) -> None:
        """Turn what one step showed into findings, counts and notes.

        ``theirs`` is what the candidate was given; of ``unhidden`` see `harmless`.
        """
        first = not self.calls
        forward = judge.forward()
        # What parts forward explains what parts backward; where only the latter was asked for, it speaks for itself.
        chance = [s for s in forward if s.verdict is Verdict.STOCHASTIC]
        rewritten = list(of_rewritten(judge))
        excuses = [*rewritten, *(chance if self.options.phase == "backward" else forward)]
        backward = judge.backward(excuses) if self.options.backward else []
        state = of_state(judge, [*excuses, *backward])
        phases = (Phase.BACKWARD, Phase.LOSS) if self.options.phase == "backward" else Phase
        asked_for = [one for one in (*forward, *rewritten, *backward, *state) if one.phase in phases]
        suspicions = sorted(asked_for, key=lambda s: (s.phase is not Phase.FORWARD, s.order))
        forced = judge.forced
        unequal = any(one.verdict is Verdict.DIFFERS for one in self.findings)
        if not (self.options.tolerance or self.mapped):
            idle = [] if unequal else harmless(judge, suspicions, Runs(trace, free), unhidden)
            judge.unproven |= bool(idle)
            hidden = [] if idle else hidden_alone(judge, suspicions, unhidden, beside=unequal)
            notes = [harmless_note(one, hidden=bool(is_hidden(one, trace))) for one in idle]
            self.notes += new_notes([*notes, *map(hidden_note, hidden)], self.notes)
            idle += hidden
            suspicions = [one for one in suspicions if one not in idle]
            spots = [one.spot.key for one in idle if one.spot is not None]
            forced = attrs.evolve(forced, checks=[check for check in forced.checks if check.spot.key not in spots])
        if self.options.backward:
            suspicions = list(with_uncalled_named(suspicions, known, (trace, free), forced))
        root = judge.alignment.pairs[0]
        found = self.judged(suspicions, known, self.findings, step)
        valued = (one for one in found if one.phase is Phase.FORWARD and not one.source)
        differing = {one.candidate.path for one in valued if one.verdict is Verdict.DIFFERS}
        excused = self._excuse_idle(judge, differing)
        if excused:  # what reaches no output explains nothing
            found = self.judged(suspicions, known, self.findings, step)
        found += self._by_setting(suspicions, step)
        rule = rule_of_numbers(self.options.tolerance)
        losses = trace.loss, judge.forced.loss
        places, is_rounding = places_of_losses(self.given), judge.loss.explains if judge.loss else None
        found += loss_finding(losses, trace, root, rule, step, places=places, is_rounding=is_rounding)
        sources = {one.candidate.path for one in found if one.source}
        found += (
            attrs.evolve(one, source=one.candidate.path in ("", None) or one.candidate.path not in sources)
            for one in unmatched_outputs(judge.alignment, step, partial(makes_the_loss, (trace, free), root))
        )
        operations = {pair.candidate.path for pair in judge.alignment.pairs if pair.candidate.module.operation}
        inputs = unlike_inputs(judge.forced, partial(_given_at, trace, theirs), step)
        found = [*inputs, *of_one_loss(merged(found, operations))]
        self.findings += found
        sent = trace.gradients or trace.parameter_gradients or judge.forced.reached
        if self.options.phase == "both" and not (sent or found):
            self.options = self.options.without_backward("no gradient comes to anything, on either side")
            self.notes.append(Note("forward_only", {"why": self.options.forward_only}))
        tolerated = self.options.tolerance is not None
        calls = compared_calls(
            judge.alignment,
            forced,
            suspicions,
            (trace, free),
            ignored=self.is_ignored,
            tolerated=tolerated,
            step=step,
            unseen=lambda pair: pair.apart,
        )
        self.add_calls(calls)
        if any(f.source for f in found):
            self.findings += downstream(calls, judge.alignment, found)
        if judge.masks:
            self.notes.append(Note("masks"))
        self.notes += [*judge.notes, *judge.policies.notes(), *notes_of(judge.alignment, found)]
        self.notes += [*tf32_notes((self.reference, self.candidate), found), *(judge.loss.notes if judge.loss else ())]
        if first:
            self.notes += _effects(trace, free)
            self._measure(trace, free, judge.alignment)
            self.mapping = matching_of(judge.alignment, known, [*self.findings, *excused])
            self.transfer = self._transferred(known, trace, judge.alignment, suspicions)
        pending, self.findings = self.findings, []
        self.add(pending, judge.alignment)

    def prove(
        self,
        step: int,
        sides: tuple[Side, Side],
        tasks: tuple[Task, Task],
        traces: tuple[Trace, Trace],
        known: Correspondence,
        judge: Judge,
    ) -> None:
        """Hold a pass against the free runs: what is left between them has to be rounding.

        What a source explains, a user's own tolerance allows or an ignored module hides is no matter of proof.
        """
        first = self.coverage is None
        if first:
            self.coverage = judge.coverage
        if self.options.phase != "backward" and not self.differs:
            rule = rule_of(self.options.tolerance)
            root = judge.alignment.pairs[0]
            numbers = differing_numbers(sides, tasks, traces[0], judge.forced, root, rule, step)
            self._tell(numbers, judge.alignment)
        left_to_user = self.options.phase == "backward" or self.options.tolerance is not None
        verdicts = {call.verdict for call in self.calls}
        if left_to_user or self.differs or Verdict.IGNORED in verdicts:
            return
        known_random, by_code = Verdict.STOCHASTIC in verdicts, self._is_drawn_by_code(judge)
        chance = known_random or by_code
        ends = Ends(judge.alignment, judge.loss.sent_otherwise if judge.loss else None)
        proof = prove(sides, tasks, Runs(*traces), ends, random=chance, judge=None if known_random else judge)
        proof = without_casts(proof, judge)
        if proof.by == "random" and is_recorded(sides[0]):
            self.findings.append(unrepeatable_finding(ends.root, step))
            return
        # With weights in each other's place the distributions would tell those, and no fault.
        if proof.gap is None and (proof.by == "random" or by_code) and not known.undecided:
            proof = of_one_distribution(sides, tasks, proof, ends)
        if first or proof.gap is not None:
            self.free_runs = FreeRuns(proof.gap is None, proof.by, proof.native, proof.bound, proof.figure)
        # Gradients were left out of the comparison, or there was nothing to compare them with.
        unproven = judge.unproven or judge.alignment.loose or (self.coverage and self.coverage.missing)
        if proof.gap is None and self.options.backward and unproven:
            # The free run was forward only: nearly always the forced one proves the backward pass.
            with temporary_store() as store:
                free = sides[1].record(tasks[1], store, values=True)
                wholes = Gradients(judge.alignment, known.matches)
                proof = without_casts(prove(sides, tasks, Runs(traces[0], free), wholes, random=chance), judge)
        if proof.gap is not None:
            self.findings.append(unexplained_finding(proof, step, places_of_losses(self.given)))
        elif self.options.backward and (again := recomputed_otherwise(sides, tasks, traces, judge.alignment, step)):
            self._tell([again], judge.alignment)
        elif first:
            self._tell(unread_inputs(sides, tasks, Runs(*traces), ends.root, judge.forced), judge.alignment)

    def _tell(self, found: Iterable[Finding | Note], alignment: Alignment) -> None:
        """Add findings, and the notes that are not known yet."""
        for one in found:
            if isinstance(one, Note):
                self.notes += [] if one in self.notes else [one]
            else:
                self.add([one], alignment)

    def _is_drawn_by_code(self, judge: Judge) -> bool:
        """Return whether a call samples random numbers that is no module of a known kind, whose settings tell."""
        stochastic = (one.candidate for one in self.calls if one.verdict is Verdict.STOCHASTIC)
        drawn = {(place.path, place.call) for place in stochastic if place is not None}
        takes = judge.settler.randomness.takes_numbers
        return any((takes(one) or one.key in drawn) and not _by_kind(one) for one in judge.alignment.pairs)

    def add(self, findings: Sequence[Finding], alignment: Alignment) -> None:
        """Add findings, each with a place on both sides and the lines of its modules."""
        self.findings += [self._located(at_home(finding, alignment), alignment) for finding in findings]

    def _located(self, finding: Finding, alignment: Alignment) -> Finding:
        """Return a finding about a parameter with the lines where its modules are called, or defined."""
        if finding.phase not in (Phase.PARAMETER, Phase.UPDATE):
            return finding
        calls = [pair.reference for pair in alignment.pairs] + alignment.left_reference
        others = [pair.candidate for pair in alignment.pairs] + alignment.left_candidate
        return attrs.evolve(
            finding,
            reference=with_location(finding.reference, calls, self.reference),
            candidate=with_location(finding.candidate, others, self.candidate),
        )

    def _excuse_idle(self, judge: Judge, differing: Collection[str | None]) -> list[Finding]:
        """Turn unmatched parameters that reach no output into notes: they change nothing that is computed.

        Returns their findings, which no longer count. Without a backward pass what the model gives with other values
        of all of them tells.

        Where a side returns something that the other does not, no backward pass starts there that would tell. Behind
        what is detached no gradient tells either: there the values of its module do, which are ``differing``.
        """
        excused = []
        root, trace, forced = judge.alignment.pairs[0], judge.trace, judge.forced
        unread = {}
        if not self.options.backward:
            missing, bench = missing_paths(self.findings), judge.settler.bench
            unread = {side: reach_nothing(missing[side], bench, root, ours=side == "reference") for side in missing}
        for finding in self.findings:
            side = finding.side or ""
            path = missing_path(finding, side)
            model, call = (self.candidate, root.candidate) if side == "candidate" else (self.reference, root.reference)
            parameter = next((p for p in model.parameters.values() if path in p.paths), None)
            reached = forced.reached if side == "candidate" else trace.parameter_gradients.keys()
            told = len(root.outputs) < len(call.outputs) or finding.candidate.path in differing
            if parameter is None or not parameter.trainable:
                continue
            if unread.get(side, parameter.path not in reached and not told):
                excused.append(finding)
                data = {"name": finding.what.name, "shape": tuple(parameter.shape), "side": side}
                self.notes.append(Note("idle_parameter", data, finding.reference, finding.candidate))
        self.findings = [one for one in self.findings if one not in excused]
        return excused

    def _by_setting(self, suspicions: Sequence[Suspicion], step: int) -> list[Finding]:
        """Return stochastic calls whose hyper-parameters differ: chance hides their values, not their settings."""
        found = []
        for suspicion in suspicions:
            pair = suspicion.pair
            differing = contrasts(pair.reference, pair.candidate) or samples_otherwise(pair.reference, pair.candidate)
            if suspicion.verdict is Verdict.STOCHASTIC and differing and not self.is_ignored(pair):
                found.append(attrs.evolve(finding_of(suspicion, source=True, step=step), verdict=Verdict.DIFFERS))
        return found

    def _measure(self, trace: Trace, free: Trace, alignment: Alignment) -> None:
        """Measure what a user sees: outputs and loss of the free runs."""
        root = alignment.pairs[0]
        known = [(a, b) for a, b in root.outputs if a < len(trace.outputs) and b < len(free.outputs)]
        known = [(a, b) for a, b in known if trace.outputs[a].shape == free.outputs[b].shape]
        outputs = [(trace.outputs[a], free.outputs[b]) for a, b in known]
        if outputs:
            apart = [difference(*both) for both in outputs]
            differing = [index for index, one in enumerate(apart) if not one.equal]
            self.notes += differing_where(trace, {known[index][0]: outputs[index] for index in differing})
            furthest = max(d.rel_l2 for d in apart), max(d.max_abs for d in apart)
            self.output = Figures(*furthest, metrics=self.measures.worst(outputs))
            rule = rule_of(self.options.tolerance)
            if rule is not None:
                self.output_within = all(d.equal or rule(*both) for d, both in zip(apart, outputs, strict=True))
        if trace.loss is not None and free.loss is not None:
            self.loss = (trace.loss, free.loss)

    def _transferred(
        self, known: Correspondence, trace: Trace, alignment: Alignment, suspicions: Sequence[Suspicion]
    ) -> Transfer:
        """Say what became of the parameters."""
        wrong = {s.pair.key for s in suspicions if s.verdict is Verdict.DIFFERS and s.phase is Phase.FORWARD}
        verified: dict[str, None] = {}
        unverified: dict[str, None] = {}
        for match in known.matches:
            users = alignment.using(match.candidate.module.path)
            called = any(pair.candidate.path == match.candidate.module.path for pair in users)
            fine = any(pair.key not in wrong for pair in users)
            # Where the code around a module uses its parameters (or nothing does) shows in their gradients.
            used = called or any(
                held.parameter.path in trace.parameter_gradients for x in match.links for held in x.references
            )
            for path in (link.candidate.parameter.path for link in match.links):
                (verified if fine and used and path not in known.undecided else unverified)[path] = None
        gone = self.mapping.unmatched_parameters
        return Transfer(
            copied=len(known.linked[1]),
            verified=len(verified),
            unverified=tuple(path for path in unverified if path not in verified),
            unmatched_reference=gone["reference"],
            unmatched_candidate=gone["candidate"],
            settled=known.settled,
            buffers=len({x.candidate.parameter.path for _, x in known.links if x.candidate.parameter.buffer}),
        )


def _effects(reference: Trace, candidate: Trace) -> Iterator[Note]:
    """Yield what a forward changes beside buffers, on either side."""
    for side, trace in (("reference", reference), ("candidate", candidate)):
        for kind, paths in (
            ("rewritten_weights", trace.rewritten),
            ("kept_state", trace.state),
            ("rebuilt", trace.rebuilt),
        ):
            if paths:
                yield Note(kind, {"side": side, "paths": list(paths)})


def _given_at(trace: Trace, theirs: Sequence[Array], spot: Spot) -> tuple[Array | None, Array | None]:
    """Return what both models were given at one of their inputs."""
    taken = dict(zip((leaf.path for leaf in spot.pair.candidate.inputs), theirs, strict=False))
    return trace.value(spot.reference), taken.get(spot.candidate.path)


def _by_kind(pair: Pair) -> bool:
    """Return whether both sides are modules that sample, whose settings tell how."""
    kinds = (call.module.kind for call in (pair.reference, pair.candidate))
    return all(kind is not None and CATALOGUE[kind].stochastic for kind in kinds)
