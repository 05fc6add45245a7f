"""Gather what the steps of a diff showed: findings, notes, counts, figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.adapter import Model
from padiff.alignment import Alignment, Pair, Resolved
from padiff.forcing import Forced
from padiff.judging._findings import at_home, finding_of, merged, place_of, with_location
from padiff.judging._judge import Judge, Judged, Suspicion
from padiff.judging._metrics import Measures
from padiff.judging._parameters import half_tied
from padiff.judging._state import of_state
from padiff.judging._tolerance import rule_of, rule_of_numbers
from padiff.kinds import CATALOGUE
from padiff.numerics import LOSS, NEGLIGIBLE, SAME, difference, epsilon_of
from padiff.options import Asked
from padiff.parameters import Pairing
from padiff.recording import Task
from padiff.report import Figures, Finding, Note, Phase, Place, Transfer, Verdict
from padiff.trace import Call, Trace, contrasts, draws_otherwise

__all__ = ["Outcome"]

_NAMED = 3
"""How many calls a note lists by name."""


@attrs.define(eq=False)
class Outcome:
    """Hold what is known so far."""

    reference: Model
    candidate: Model
    tasks: tuple[Task, Task]
    asked: Asked
    resolved: Resolved
    measures: Measures = attrs.field(factory=Measures)
    findings: list[Finding] = attrs.field(factory=list)
    notes: list[Note] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    transfer: Transfer | None = None
    output: Figures | None = None
    output_within: bool | None = None
    loss: tuple[float, float] | None = None

    def gather(self, step: int, pairing: Pairing, trace: Trace, free: Trace, judged: Judged) -> None:
        """Turn what one step showed into findings, counts and notes."""
        judge, forward = judged.judge, judged.judge.forward()
        changed = {f.candidate.path for f in self.findings if f.phase is Phase.PARAMETER} | half_tied(pairing)
        whole = {match.candidate.module.path for match in pairing.matches if match.candidate.special is not None}
        # What parts forward explains what parts backward; where only the latter was asked for, it speaks for itself.
        chance = [s for s in forward if s.verdict is Verdict.STOCHASTIC]
        excuses = chance if self.asked.phase == "backward" else forward
        backward = judge.backward(excuses) if self.asked.backward else []
        state = of_state(judge, [*excuses, *backward])
        suspicions = sorted(self._of_phase([*forward, *backward, *state]), key=lambda s: s.order)
        found = []
        for suspicion in suspicions:
            ignored = self._is_ignored(suspicion.pair)
            explained = _is_explained(suspicion.pair.candidate, changed, whole)
            source = suspicion.verdict is Verdict.DIFFERS and not ignored and not explained
            found.append(finding_of(suspicion, source=source, verdict=Verdict.IGNORED if ignored else None, step=step))
        found += self._by_setting(judge, suspicions, step)
        found += self._loss_finding(trace, judged.forced, step) + self._unmatched_outputs(judge.alignment, step)
        found = self._unlike_inputs(judged.forced, step) + merged(found)
        self.findings += found
        if any(f.source for f in found):
            self.findings += list(_victims(judge.alignment, trace, free, found, step))
        self._count(judge, suspicions)
        self.notes += [Note(text) for text in sorted(judge.notes)]
        self.notes += _misfed_notes(judge.alignment, parted=any(f.source for f in found))
        self.notes += _setting_notes(judge.alignment, found)
        self.notes += _unmatched_notes(judge.alignment)
        if step == 0:
            self._measure(trace, free, judge.alignment)
            self.transfer = self._transferred(pairing, trace, judge.alignment, suspicions)
        self._excuse_idle(trace, judged.forced)
        known, self.findings = self.findings, []
        self.add(known, judge.alignment)

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
                text = f"{finding.what} {list(parameter.shape)} is in the {side} only, and reaches no output"
                self.notes.append(Note(text, finding.reference, finding.candidate))
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
            modules = pair.reference.module, pair.candidate.module
            differing = contrasts(*modules) or draws_otherwise(pair.reference, pair.candidate)
            if suspicion.verdict is Verdict.STOCHASTIC and differing and not self._is_ignored(pair):
                found.append(attrs.evolve(finding_of(suspicion, source=True, step=step), verdict=Verdict.DIFFERS))
        return found

    def _unlike_inputs(self, forced: Forced, step: int) -> list[Finding]:
        """Return the arguments that were given as other values to each side: then the inputs part, not the models."""
        found = []
        for check in forced.checks:
            spot, apart = check.spot, check.difference
            if check.backward or check.kept or spot.owner is not None or spot.what != "input":
                continue
            coarser = epsilon_of(spot.reference.dtype, spot.candidate.dtype)
            if apart.rel_l2 <= NEGLIGIBLE(coarser) if check.close is None else check.close:
                continue
            found.append(
                Finding(
                    verdict=Verdict.DIFFERS,
                    phase=Phase.FORWARD,
                    reference=place_of(spot.pair.reference),
                    candidate=place_of(spot.pair.candidate),
                    what=f"input {spot.candidate.path!r}",
                    figures=Figures(apart.rel_l2, apart.max_abs, metrics=check.measured),
                    evidence=("what was given to the candidate is not what was given to the reference",),
                    cause=f"the inputs themselves differ, in {spot.candidate.path!r}",
                    source=True,
                    step=step,
                )
            )
        return found

    def _loss_finding(self, trace: Trace, forced: Forced, step: int) -> list[Finding]:
        ours, theirs = trace.loss, forced.loss
        if ours is None or theirs is None:
            return []
        error = abs(ours - theirs)
        rule = rule_of_numbers(self.asked.tolerance)
        bound = LOSS(epsilon_of(*(str(output.dtype) for output in trace.outputs)) or epsilon_of("float32"))
        apart = not rule(np.asarray(ours), np.asarray(theirs)) if rule else error > bound * max(abs(ours), abs(theirs))
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
                returned = f"{leaf.path or 'a tensor'} {leaf.dtype}{list(leaf.shape)}"
                text = f"the {side} returns {returned}, the {other} nothing like it"
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
        left = sum(not (call.module.operation or judge.alignment.is_inside(call)) for call in calls)
        if left:
            self.counts[Verdict.UNMATCHED.value] += left

    def _measure(self, trace: Trace, free: Trace, alignment: Alignment) -> None:
        """Measure what a user sees: outputs and loss of the free runs."""
        outputs = [
            (trace.outputs[a], free.outputs[b])
            for a, b in alignment.pairs[0].outputs
            if a < len(trace.outputs) and b < len(free.outputs)
        ]
        if outputs:
            apart = [difference(*both) for both in outputs]
            furthest = max(d.rel_l2 for d in apart), max(d.max_abs for d in apart)
            self.output = Figures(*furthest, metrics=self.measures.worst(outputs))
            rule = rule_of(self.asked.tolerance)
            within = (d.equal or rule is None or rule(*both) for d, both in zip(apart, outputs, strict=True))
            self.output_within = None if rule is None else all(within)
        if trace.loss is not None and free.loss is not None:
            self.loss = (trace.loss, free.loss)

    def _transferred(
        self, pairing: Pairing, trace: Trace, alignment: Alignment, suspicions: Sequence[Suspicion]
    ) -> Transfer:
        """Say what became of the parameters."""
        wrong = {id(s.pair) for s in suspicions if s.verdict is Verdict.DIFFERS and s.phase is Phase.FORWARD}
        verified: set[int] = set()
        unverified: dict[int, str] = {}
        for match in pairing.matches:
            users = alignment.using(match.candidate.module)
            called = any(pair.candidate.module.native is match.candidate.module.native for pair in users)
            fine = any(id(pair) not in wrong for pair in users)
            # Where the code around a module uses its parameters (or nothing does) shows in their gradients.
            used = called or any(
                held.parameter.path in trace.parameter_gradients for x in match.links for held in x.references
            )
            for link in match.links:
                parameter = link.candidate.parameter
                if fine and used and parameter.path not in pairing.undecided:
                    verified.add(id(parameter))
                else:
                    unverified[id(parameter)] = parameter.path
        gone = [f for f in self.findings if f.phase is Phase.PARAMETER and f.verdict is Verdict.UNMATCHED]
        return Transfer(
            copied=pairing.copied,
            verified=len(verified),
            unverified=tuple(path for key, path in unverified.items() if key not in verified),
            unmatched_reference=tuple(
                _parameter_path(f.reference, f.what) for f in gone if _has(f.evidence, "reference")
            ),
            unmatched_candidate=tuple(
                _parameter_path(f.candidate, f.what) for f in gone if _has(f.evidence, "candidate")
            ),
            settled=pairing.settled,
            buffers=len({id(link.candidate.parameter) for _, link in pairing.links if link.candidate.parameter.buffer}),
        )


def _is_explained(call: Call, changed: set[str | None], whole: set[str]) -> bool:
    """Return whether a call's own parameters are known to differ; those below it too, where it is taken as a whole."""
    if call.path in whole:
        below = f"{call.path}." if call.path else ""
        return any(path is not None and (path == call.path or path.startswith(below)) for path in changed)
    return call.path in changed and call.leaf


def _victims(alignment: Alignment, trace: Trace, free: Trace, found: Sequence[Finding], step: int) -> Iterator[Finding]:
    """Yield the calls whose output in the free run carries a difference that arose before."""
    sources = {f.candidate.path for f in found if f.source}
    seen: set[str] = set()
    for pair in alignment.pairs:
        if pair.candidate.path in sources or pair.candidate.path in seen:
            continue
        for a, b in pair.outputs:
            leaves = pair.reference.outputs[a], pair.candidate.outputs[b]
            ours, theirs = trace.samples.get(leaves[0].token), free.samples.get(leaves[1].token)
            if ours is None or theirs is None or ours.shape != theirs.shape:
                continue
            apart = difference(ours, theirs)
            if apart.rel_l2 > SAME(epsilon_of(*(leaf.dtype for leaf in leaves))):
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


def _misfed_notes(alignment: Alignment, *, parted: bool) -> Iterator[Note]:
    """Yield one note on the calls that take a value of another shape and so could not be fed."""
    unfed = list(dict.fromkeys(repr(pair.candidate.path) for pair in alignment.pairs if pair.misfed))
    if not unfed:
        return
    named = ", ".join(unfed[:_NAMED]) + (f" and {len(unfed) - _NAMED} more" if len(unfed) > _NAMED else "")
    text = f"given a value of another shape than in the reference, and judged only with the code around: {named}"
    yield Note(f"{text}; mend the sources and compare again" if parted else text)


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
        for call in (call for call in calls if not (call.module.operation or alignment.is_inside(call))):
            place = place_of(call)
            text = f"only the {side} calls it; judged with the code around it"
            yield Note(text, place, None) if side == "reference" else Note(text, None, place)


def _parameter_path(place: Place, what: str) -> str:
    name = what.rpartition(" ")[2].rpartition(".")[2]  # the place is where it hangs, which its name may begin with
    return f"{place.path}.{name}" if place.path else name


def _has(evidence: Sequence[str], side: str) -> bool:
    return any(text.startswith(f"the {side} has") for text in evidence)


def _defined(function: Callable[..., Any] | None) -> str | None:
    code = getattr(function, "__code__", None)
    place = (code.co_filename, code.co_firstlineno) if code else getattr(function, "definition", None)
    return f"{place[0]}:{place[1]}" if place else None
