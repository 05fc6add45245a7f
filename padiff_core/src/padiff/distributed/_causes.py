"""Say of differences which ranks they are on, and which reduction explains them; find ranks that disagree."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import attrs

from padiff.distributed._disagreements import disagreements, partial_axes
from padiff.distributed._job import Job
from padiff.distributed._merged_step import MergedStep, Parts
from padiff.distributed._reductions import cause_of, loss_of_each, normalized_by_each
from padiff.distributed._run import RankedRun
from padiff.distributed._updates import of_updates
from padiff.paths import is_at, joined, last, parent
from padiff.report import Cause, Evidence, Finding, Phase, Place, What
from padiff.trace import Call, Trace


def explained(findings: Sequence[Finding], runs: Sequence[Any], traces: Sequence[Trace], step: int) -> list[Finding]:
    """Return the findings with what the ranks tell of those of a step, and behind them those of ranks that disagree.

    ``runs`` are the reference's and the candidate's, ``traces`` theirs of the step.
    """
    found = list(findings)
    for index, run in reversed([*enumerate(runs)]):  # the reference is right, whatever its ranks are
        if isinstance(run, RankedRun):
            alone = index == 1 or not isinstance(runs[1], RankedRun)
            found = _explained(found, Job.of(runs, traces, index, step), alone=alone)
    return found


def _explained(findings: Sequence[Finding], job: Job, *, alone: bool) -> list[Finding]:
    """Return the findings with what one job's ranks tell; it is ``alone`` where no candidate of several ranks is."""
    found = list(findings)
    for number, one in enumerate(found):
        if one.step != job.number or not one.source:
            continue
        if one.cause is not None and one.what.kind == "input":
            cause = _cause_of(one, job)
            said = [] if cause is None else [Evidence("inputs_of_ranks", {"cause": str(cause)})]
            found[number] = attrs.evolve(one, evidence=(*one.evidence, *said))
        elif one.cause is None or _leaves_open(one.cause):
            cause = _cause_of(one, job)
            unsummed = None if cause is not None or one.cause is not None else _unsummed(one, job)
            found[number] = unsummed or (one if cause is None else attrs.evolve(one, cause=cause))
    found = _once(_of_parameters(found, job), job.number)
    # What is told of an earlier step is the reason of what follows.
    told = {one.what.name for one in found if one.is_caused_by("out_of_step")}
    if not any(one.source and one.step < job.number for one in found):
        here = [one for one in found if one.source and one.step == job.number and one.phase is not Phase.UPDATE]
        at, known = {job.mine(one).path for one in here}, {_held_by(one, job) for one in here}
        more = disagreements(job, told, differs=bool(here))
        new = [one for one in more if one.what.kind != "output" or job.mine(one).path not in at]
        new = [one for one in new if one.what.kind != "parameter" or _held_by(one, job) not in known]
        held = {job.mine(one).path for one in new if one.what.kind == "parameter"}
        # What a module gives with a weight that is another on each rank is a consequence of that.
        found = [_consequence(one, job, held) for one in found]
        found = [_downstream(one, job) if new and one.step == job.number else one for one in found] + new
        if alone and not any(_is_of_ranks(one) and one.step == job.number for one in found):
            found = of_updates(found, job)
    return [_placed(one, job, alone=alone) if one.step == job.number else one for one in found]


def _leaves_open(cause: Cause) -> bool:
    """Return whether a cause says how a value differs, and not why: which ranks hold what tells more."""
    return cause.name == "rows_in_another_order" or list(cause.parameters) == ["gradients"]


def _placed(finding: Finding, job: Job, *, alone: bool) -> Finding:
    """Return a finding with its ranks: those that its cause names, or that hold its module where not all do."""
    place, named = job.mine(finding), finding.cause.parameters.get("ranks", ()) if finding.cause else ()
    if place.path is None or place.ranks:
        return finding
    ends = [name for name in reversed(finding.between or ()) if name not in ("start", "end")]
    inner = (joined(place.path, name) for name in ends)
    held = next((found for path in (*inner, place.path) if (found := job.run.holders(path))), ())
    ranks = tuple(named) if named and alone else held
    there: dict[str, Any] = {job.side: attrs.evolve(place, ranks=ranks)} if ranks else {}
    return attrs.evolve(finding, **there)


_OF_RANKS = ("missing_all_reduce", "wrong_group", "wrong_on_ranks", "nothing_on_ranks", "out_of_step")


def _is_of_ranks(finding: Finding) -> bool:
    """Return whether it tells why ranks part, so that what they hold after the step is a consequence."""
    return finding.source and finding.phase is not Phase.UPDATE and finding.is_caused_by(*_OF_RANKS)


def _once(findings: Sequence[Finding], step: int) -> list[Finding]:
    """Return the findings of a step, of which those of one parameter, for one reason of the ranks', are one source."""
    seen = set()
    found = []
    for one in findings:
        if one.step == step and one.source and one.cause is not None and one.what.kind == "parameter":
            key = one.reference.path, one.candidate.path, one.what.name, str(one.cause)
            one = attrs.evolve(one, source=False) if key in seen else one
            seen.add(key)
        found.append(one)
    return found


def _of_parameters(findings: Sequence[Finding], job: Job) -> list[Finding]:
    """Return findings, where gradients of parameters in place of one of the code around them that nothing explains.

    What one rank does not train is no fault of the code that uses it.
    """
    found = list(findings)
    for one in findings:
        if not (one.step == job.number and one.source and one.phase is Phase.BACKWARD and one.cause is None):
            continue
        around = job.mine(one).path
        below = [
            (at, cause)
            for at, other in enumerate(found)
            if other.step == job.number and other.what.kind == "parameter_gradient" and not other.source
            if is_at(job.mine(other).path or "", around or "")
            if (cause := _cause_of(other, job)) is not None
        ]
        for at, cause in below:
            kept = tuple(said for said in found[at].evidence if said.kind != "consequence")
            found[at] = attrs.evolve(found[at], source=True, cause=cause, evidence=kept)
        found = [attrs.evolve(other, source=False) if below and other is one else other for other in found]
    return found


def _held_by(finding: Finding, job: Job) -> tuple[str | None, str]:
    return job.mine(finding).path, last(finding.what.name)


def _consequence(finding: Finding, job: Job, held: Collection[str | None]) -> Finding:
    after = finding.step == job.number and finding.phase in (Phase.FORWARD, Phase.BACKWARD)
    return attrs.evolve(finding, source=False) if after and job.mine(finding).path in held else finding


def _downstream(finding: Finding, job: Job) -> Finding:
    """Return a finding as what it is where ranks disagree already in what its call takes: a consequence."""
    call = job.call(finding)
    places = [] if call is None else [(call.key, "input", index) for index in range(len(call.inputs))]
    inputs = map(job.step.values.get, places)
    unlike = any(parts is not None and parts.spreading.unlike for parts in inputs)
    return attrs.evolve(finding, source=False) if unlike and finding.phase is Phase.FORWARD else finding


def _cause_of(finding: Finding, job: Job) -> Cause | None:
    """Return what the parts on the ranks tell of a difference."""
    mine, theirs, step = job.mine(finding), job.theirs(finding), job.step
    if mine.path is None or theirs.path is None:
        return None
    if finding.what.kind in _HELD:
        return _cause_held(finding, job)
    if finding.what.kind == "loss":
        return _of_loss(job)
    own = job.call(finding)
    side, _, gradient = finding.what.kind.partition("_")
    if side not in ("input", "output") or gradient not in ("", "gradient") or own is None:
        return None
    held = own.leaves(side)
    named = (
        number for number, leaf in enumerate(held) if finding.what.index is None and leaf.path == finding.what.name
    )
    which = next(named, finding.what.index or 0)
    place = own.key, side, which
    parts = None if which >= len(held) else step.values.get(place)
    parts = step.gradients.get(held[which].token) if parts is not None and gradient else parts
    expected = job.others.value(place, gradient or "value")
    if parts is None or expected is None:
        return None
    if gradient and not own.path:
        return loss_of_each(parts, expected) or cause_of(parts, expected)
    if own.module.kind == "batch_norm" and finding.what.kind == "output":
        found = normalized_by_each(parts, expected)
        if found is not None:
            return found
    given = () if side == "input" or gradient else [step.trace.value(leaf) for leaf in own.inputs]
    return cause_of(parts, expected, _parameters_of(step, own), given)


def _of_loss(job: Job) -> Cause | None:
    """Return what the ranks' losses do otherwise, by what they send back to the model's outputs."""
    step, root = job.step, job.step.trace.root
    for which, leaf in enumerate(root.outputs):
        parts, expected = step.gradients.get(leaf.token), job.others.value((root.key, "output", which), "gradient")
        found = parts and expected and loss_of_each(parts, expected)
        if found:
            return found
    return None


def _parameters_of(step: MergedStep, call: Call) -> dict[str, Any]:
    trace = step.trace
    own = {last(path): key for path, key in trace.weights.items() if parent(path) == call.path and key >= 0}
    return {name: trace.array(key) for name, key in own.items()}


def _unsummed(finding: Finding, job: Job) -> Finding | None:
    """Return the finding at the call before it whose ranks gave parts of a sum, where this one's code took these.

    Parts that add up to the other side's value are a sum where nobody says otherwise; where what is made of them is
    wrong, nobody summed them.
    """
    theirs, call = job.theirs(finding), job.call(finding)
    if call is None or finding.phase not in (Phase.FORWARD, Phase.BACKWARD):
        return None
    side = "input" if finding.phase is Phase.BACKWARD else "output"
    found = _giver(call, job.step, side, inside=finding.between is not None)
    if found is None:
        return None
    giver, which, ranks = found
    place = Place(giver.path, giver.module.class_name, call=giver.ordinal)
    return attrs.evolve(
        finding,
        **job.places(place, place if theirs.path is not None else theirs),
        what=What("output" if side == "output" else "input_gradient", giver.leaves(side)[which].path, which),
        cause=Cause("missing_all_reduce", {"ranks": ranks}, verified=True),
        evidence=(*finding.evidence, Evidence("taken_unsummed", {"call": call.path})),
        between=None,
        given=(),
    )


def _giver(call: Call, step: MergedStep, side: str, *, inside: bool) -> tuple[Call, int, list[int]] | None:
    """Return the innermost call that gave a call's code parts of a sum, which of its outputs, and on which ranks.

    On the ``input`` side the one that sent them, as gradients of which of its inputs. Where code between hands them on
    (it adds them to what it was given), it is the nearest one that made parts of a sum of what is none.
    """
    takes = "output" if side == "input" else "input"
    places = {one.key: place for place, one in enumerate(step.trace.calls)}
    taken = {leaf.token for leaf in call.leaves(takes)}

    def parts(one: Call, at: str, which: int) -> Parts | None:
        values = side == "output"
        return step.values.get((one.key, at, which)) if values else step.gradients.get(one.leaves(at)[which].token)

    def sums(one: Call, at: str) -> list[int]:
        found = ((which, parts(one, at, which)) for which in range(len(one.leaves(at))))
        return [which for which, held in found if held is not None and partial_axes(held)]

    def ahead(one: tuple[Call, int]) -> int:
        way = places[one[0].key] - places[call.key]
        return way if side == "input" else -way

    def took(one: tuple[Call, int]) -> bool:
        below = inside and side == "output" and one[0].parent is call
        return below or one[0].leaves(side)[one[1]].token in taken

    outside = (one for one in step.trace.calls if one is not call and one not in call.ancestors())
    given = [(one, which) for one in outside for which in sums(one, side)]
    near = list(filter(took, given))
    if not near and sums(call, takes):
        near = [one for one in given if ahead(one) > 0 and not sums(one[0], takes)]
    innermost = [one for one in near if not any(one[0] in other.ancestors() for other, _ in near)]
    found = min(innermost, key=ahead, default=None)
    held = found and parts(found[0], side, found[1])
    return (*found, sorted(held.arrays)) if found and held else None


_HELD = {"parameter": "weights", "updated_parameter": "updated", "parameter_gradient": "parameter_gradients"}
"""Kind of what a finding is about -> where a trace keeps it, under the parameter's path."""


def _cause_held(finding: Finding, job: Job) -> Cause | None:
    name = _HELD[finding.what.kind]
    # A unit of several modules names its parameter from where these lie.
    told = dict.fromkeys((finding.what.name, last(finding.what.name)))
    for home, own in itertools.product((finding.candidate.path, finding.reference.path), told):
        path = job.others.mine(joined(home or "", own))
        parts = None if path is None else job.step.parameters.get((name, path))
        expected = None if path is None or parts is None else job.others.parameter(name, path, parts.whole)
        if parts is not None and expected is not None:
            return cause_of(parts, expected) or parts.out_of_step
    return None
