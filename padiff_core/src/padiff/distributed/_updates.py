"""Say of the weights that a step left which ranks stepped otherwise than the other side: not at all, further, apart.

All parameters that the same ranks step alike are one finding, at the innermost module that holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from padiff.distributed._expected import Expected
from padiff.distributed._infer import Spreading
from padiff.distributed._job import Job
from padiff.distributed._merged_step import Parts
from padiff.distributed._optimizers import unlike_settings
from padiff.distributed._others import Other
from padiff.distributed._reductions import cause_of, is_same, other_value
from padiff.distributed._run import RankedRun
from padiff.grouping import grouped
from padiff.judging import given_gradients, multiple, place_around, rate_between, shown_setting
from padiff.numerics import ACCUMULATED, EXACT, SAME, Array, difference, epsilon, epsilon_of
from padiff.paths import joined, last
from padiff.report import Cause, Evidence, Figures, Finding, Phase, What
from padiff.trace import Summary

_ALIKE = 3
"""Digits in which factors are one, which are those of steps that were rounded."""


@attrs.frozen(eq=False)
class _Stepped:
    """What the ranks held of a parameter before and after a step, and what they should."""

    path: str
    parts: Parts
    after: Mapping[int, Array]
    wrong: tuple[int, ...]
    before: Mapping[int, Array]
    """Empty where it is not known."""
    right: tuple[Array, Array] | None
    """The other side's, whole, before and after; None where these are not known."""
    given: Mapping[int, tuple[int, float]]
    """Rank -> the first of its replicas, and how many times the gradient of that its optimizer was given."""

    @property
    def everywhere(self) -> bool:
        """Return whether no rank that holds it is right."""
        return len(self.wrong) == len(self.after)


def of_updates(findings: Sequence[Finding], job: Job) -> list[Finding]:
    """Return findings of a step, with those of the parameters that some ranks stepped otherwise in place of others'."""
    run, others, step = job.run, job.others, job.number
    told = [one for one in findings if one.step == step and one.source and one.phase is Phase.UPDATE]
    judged = {path for one in told for path in _paths(one, others)}
    stepped = [one for one in _stepped(job, judged) if one.wrong]
    groups: dict[Hashable, list[_Stepped]] = {}
    for one in stepped:  # what all ranks step otherwise that hold it, though these hold experts of their own, is one
        unreduced = _stepped_alone(one, job)
        groups.setdefault(unreduced or (() if one.everywhere else one.wrong), []).append(one)
    found: list[tuple[Finding, set[str]]] = []
    handled: set[str] = set()
    for key, group in groups.items():
        wrong = sorted({rank for one in group for rank in one.wrong})
        for cause, some in [(key, group)] if isinstance(key, Cause) else _causes(run, wrong, group):
            found.append((_finding(job, cause, some), {one.path for one in some}))
            handled.update(one.path for one in some)
    kept = [one for one in findings if one not in told or not set(_paths(one, others)) <= handled]
    # A cause that holds for more than ranks explain is that of all.
    known = {path for one in kept if one in told and one.cause is not None for path in _paths(one, others)}
    more = [finding for finding, paths in found if not paths <= known]
    return [_counted(one, run) if one in told else one for one in kept] + more


def _counted(finding: Finding, run: RankedRun) -> Finding:
    """Return the finding of a step that is as many times another as there are ranks with it said."""
    times = _factor({} if finding.cause is None else finding.cause.parameters)
    for axis in run.grid.axes:
        group = run.grid.groups(list(run.runs), axis)[0]
        if len(group) > 1 and float(f"{times:.{_ALIKE}g}") in (len(group), float(f"{1 / len(group):.{_ALIKE}g}")):
            figures = {"ranks": group, "summed": times > 1}
            return attrs.evolve(finding, evidence=(Evidence("as_many_ranks", figures), *finding.evidence))
    return finding


def _factor(parameters: Mapping[str, Any]) -> float:
    """Return how many times another a step is, or each gradient that it is made by; 0 where it is not one number."""
    shares = parameters.get("gradients", {}).values()
    if shares and all(one["least"] == one["most"] for one in shares):
        ours, theirs = (one["least"] for one in shares)
        return float(theirs / ours) if ours else 0.0
    return float(parameters.get("times", 0.0))


def _paths(finding: Finding, others: Other) -> list[str]:
    """Return the job's parameters that a finding is about."""
    together = next((one.figures["paths"] for one in finding.evidence if one.kind == "stepped_alike"), None)
    # A name may be counted from a module around the place: linear_qkv.bias at linear_qkv.
    named = [joined(finding.candidate.path or "", last(finding.what.name))] if together is None else together
    return [path for one in named if (path := others.mine(one)) is not None]


def _stepped(job: Job, judged: Collection[str]) -> Iterator[_Stepped]:
    """Yield the parameters that were found to be stepped otherwise, and those on which ranks disagree."""
    run, before_it = job.run, job.number - 1
    last = run.merged(before_it) if before_it in run.steps else None
    earlier = job.others.at(job.other.trace(before_it)) if before_it in job.other.steps else None
    for (name, path), parts in job.step.parameters.items():
        unlike = parts.spreading.unlike
        if name != "updated" or job.step.trace.parameters[path].buffer:
            continue
        if not (unlike or path in judged):
            # The same to the bit, by a sign or by a broadcast: what another replica overwrites may be anything, but no
            # multiple of what that one is given.
            given = _given_apart(job, path, parts.spreading, scaled=True)
            if given:
                yield _Stepped(path, parts, parts.read(), tuple(given), {}, None, given)
            continue
        after = parts.read()
        start = job.step.parameters.get(("weights", path)) or (last and last.parameters.get(("updated", path)))
        before = start.read() if start else {}
        whole, began = (
            other_value(parts, job.others.parameter(name, path, parts.whole)) for name in ("updated", "weights")
        )
        if began is None and earlier is not None:
            began = other_value(parts, earlier.parameter("updated", path, parts.whole))
        if whole is not None and began is not None and whole.shape == began.shape:
            wrong = tuple(rank for rank in after if _strays(rank, after, parts, began, whole))
            if wrong:
                yield _Stepped(path, parts, after, wrong, before, (began, whole), {})
                continue
            # Each is near to what it should be; replicas have to be equal all the same, and stepped by the same: an
            # optimizer that scales its steps, as Adam does, hides another gradient.
            given = _given_apart(job, path, parts.spreading)
            unlike = tuple(one for one in unlike if one in given or _differs_from_replicas(one, after, unlike))
            if unlike:
                yield _Stepped(path, parts, after, unlike, before, None, given)
        elif unlike:
            yield _Stepped(path, parts, after, unlike, before, None, {})


def _given_apart(job: Job, path: str, spreading: Spreading, *, scaled: bool = False) -> dict[int, tuple[int, float]]:
    """Return which ranks step a parameter by another gradient than the first of their replicas, and how many times it.

    Rank -> that first one, and the factor. ``scaled``: a multiple of it alone.
    """
    known: dict[int, Summary] = {}
    for rank, run in job.run.runs.items():
        trace = run.trace(job.number)
        told = trace.summaries.get(trace.handed.get(path, 0))
        if told is not None and told.norm and told.shape == trace.parameters[path].shape:
            known[rank] = told
    grid, found = job.run.grid, dict[int, tuple[int, float]]()
    for axis in (axis for axis in grid.axes if spreading.kind(axis) == "replicate"):
        for first, *others in grid.groups(list(known), axis):
            for rank in others:
                own, right = (known[one].norm or 0.0 for one in (rank, first))
                bound = ACCUMULATED(epsilon_of(known[rank].dtype)) * max(own, right)
                if abs(own - right) > bound and (not scaled or _is_multiple(known[rank], known[first])):
                    found.setdefault(rank, (first, own / right))
    return found


def _is_multiple(own: Summary, right: Summary) -> bool:
    """Return whether a value is another one, of several elements, but for its scale."""
    if own.sample is None or right.sample is None or own.sample.size < 2:
        return False
    times, left = multiple(right.sample, own.sample)
    return times > 0 and left <= ACCUMULATED(epsilon_of(own.dtype)) * float(np.linalg.norm(own.sample))


def _strays(rank: int, after: Mapping[int, Array], parts: Parts, began: Array, whole: Array) -> bool:
    """Return whether a rank's step ended elsewhere than where it should, by more than rounding."""
    start, right = (parts.share(rank, after, one) for one in (began, whole))
    own, eps = after[rank], epsilon(whole.dtype)
    if start is None or right is None or right.shape != own.shape:
        return False
    moved, apart = (float(np.linalg.norm((right - one).astype(np.float64))) for one in (start, own))
    return apart > SAME(eps) * moved + EXACT(eps) * float(np.linalg.norm(right))


def _differs_from_replicas(rank: int, after: Mapping[int, Array], unlike: Collection[int]) -> bool:
    """Return whether a rank ended its step elsewhere than each rank that others are replicas of, but for rounding."""
    own = after[rank]
    firsts = [one for other, one in after.items() if other not in unlike and one.shape == own.shape]
    apart = [difference(one, own).rel_l2 for one in firsts]
    return min(apart, default=0.0) > EXACT(epsilon(own.dtype))


def _causes(run: RankedRun, wrong: Sequence[int], group: Sequence[_Stepped]) -> Iterator[tuple[Cause, list[_Stepped]]]:
    """Yield what explains that ranks hold other parameters than they should, and which of these."""
    known = [one for one in group if one.right is not None]
    unknown = [one for one in group if one.right is None]
    if unknown:
        first = next(rank for rank in unknown[0].after if rank not in wrong)
        told: dict[str, Any] = {"ranks": list(wrong), "first": first}
        apart = [one for one in unknown if one.given.keys() >= set(wrong)]
        rest = [one for one in unknown if one not in apart]
        if apart:
            firsts, shares = zip(*(apart[0].given[rank] for rank in wrong), strict=True)
            figures = {"first": firsts[0], "times": [float(f"{one:.4g}") for one in shares]}
            yield Cause("given_on_ranks", {**told, **figures}, verified=True), apart
        if rest:
            yield Cause("out_of_step", told, verified=True), rest
    if not known:
        return
    times = {rank: _times(known, rank) for rank in wrong}
    right = [rank for rank in run.runs if rank not in wrong and any(rank in one.after for one in known)]
    rounded = {None if one is None else float(f"{one:.{_ALIKE}g}") for one in times.values()}
    if right:
        told = {"ranks": list(wrong), "right": right}
        if len(rounded) == 1 and None not in rounded:
            yield Cause("stepped_on_ranks", {**told, "times": rounded.pop()}, verified=True), known
        else:
            yield Cause("wrong_on_ranks", told, verified=True), known
        return
    if None not in rounded:
        if len(rounded) > 1:
            shown = [float(f"{one:.4g}") for one in times.values() if one is not None]
            yield Cause("scaled_by_ranks", {"ranks": list(times), "times": shown}, verified=True), known
        return
    mixed = _mixed(known)
    if mixed is not None:
        yield mixed, known
        return
    unreduced: dict[str, tuple[Cause, list[_Stepped]]] = {}
    for one in known:
        cause = _of_steps(one)
        if cause is not None and cause.name == "missing_all_reduce":
            unreduced.setdefault(str(cause), (cause, []))[1].append(one)
    yield from unreduced.values()


def _mixed(group: Sequence[_Stepped]) -> Cause | None:
    """Find steps of parameters that one rank each holds, which are made of what all ranks' should be: experts' sums."""
    held = grouped(group, lambda one: next(iter(one.after)))
    if len(held) < 2 or any(len(one.after) > 1 or one.before.keys() != one.after.keys() for one in group):
        return None
    for together in zip(*held.values(), strict=False):
        right = [one.right for one in together if one.right is not None]
        if len({after.shape for _, after in right}) > 1 or len(right) < len(held):
            return None
        start = np.zeros_like(right[0][0])
        total = np.sum([after - began for began, after in right], axis=0)
        for rank, one in zip(held, together, strict=True):
            did = one.after[rank] - one.before[rank]
            if rate_between((total, did), start) is None:
                return None
    ranks = list(held)
    return Cause("experts_mixed", {"ranks": ranks}, verified=True)


def _of_steps(one: _Stepped) -> Cause | None:
    """Return what explains the steps of ranks, or the values where it is not known what they were."""
    if one.right is None:
        return None
    target, parts = one.right[1], one.parts
    if one.before.keys() == one.after.keys():
        steps = {rank: partial(np.subtract, one.after[rank], one.before[rank]) for rank in one.after}
        target, parts = target - one.right[0], attrs.evolve(parts, arrays=steps)
    return cause_of(parts, Expected(((target.shape, partial(np.asarray, target)),)))


def _stepped_alone(one: _Stepped, job: Job) -> Cause | None:
    """Return that replicas stepped by what arrived on each of them alone, where all of it is the other side's gradient.

    An optimizer that scales its steps, as Adam does, hides it in these.
    """
    kept = job.step.parameters.get(("parameter_gradients", one.path))
    if kept is None or not one.parts.spreading.unlike:
        return None
    right = other_value(kept, job.others.parameter("parameter_gradients", one.path, kept.whole))
    if right is None or not is_same(right, kept.value()):
        return None
    first, *others = kept.read().values()
    if all(is_same(first, one) for one in others):
        return None
    given = [given_gradients(job.run.runs[rank].trace(job.number)).get(one.path) for rank in one.after]
    if any(gradient is None or gradient.times != 1 for gradient in given):
        return None
    return Cause("gradients_unreduced", {"ranks": sorted(one.after)}, verified=True)


def _times(group: Sequence[_Stepped], rank: int) -> float | None:
    """Return how many times the step that it should make a rank makes; None where it makes another one."""
    should, does, began = [], [], []
    for one in (one for one in group if rank in one.after):
        assert one.right is not None
        shares = [one.parts.share(rank, one.after, whole) for whole in one.right]
        if rank not in one.before or any(share is None for share in shares):
            return None
        start, target = (share.reshape(-1) for share in shares if share is not None)
        did = one.after[rank].reshape(-1) - one.before[rank].reshape(-1)
        should.append(target)
        does.append(start + did)
        began.append(start)
    values = [np.concatenate(one).astype(np.float64) for one in (should, does, began)]
    if np.array_equal(values[1], values[2]) and not np.array_equal(values[0], values[2]):
        return 0.0
    return rate_between((values[0], values[1]), np.concatenate(began))


def _finding(job: Job, cause: Cause, group: Sequence[_Stepped]) -> Finding:
    paths = [one.path for one in group]
    place = place_around(job.run.about, paths)
    apart = max((_apart(one) for one in group), key=lambda one: one.rel_l2)
    judged = len([1 for name, _ in job.step.parameters if name == "updated"])
    evidence = [Evidence.of("stepped_alike", paths=paths, of=judged)] if len(paths) > 1 else []
    if cause.name in ("out_of_step", "given_on_ranks"):
        evidence.append(Evidence("ranks_disagree", {"side": job.side, **cause.parameters}))
    unlike = {name: shown_setting(own) for name, own in unlike_settings(job.step.trace, paths).items()}
    evidence += [Evidence("settings_of_ranks", unlike)] if unlike else []
    together = What("updates", f"{len(paths)} parameters")
    what = together if len(paths) > 1 else What("updated_parameter", last(paths[0]))
    at = place, job.others.reported(place.path or "", None)
    return job.finding(Phase.UPDATE, what, at, figures=apart, evidence=tuple(evidence), cause=cause)


def _apart(one: _Stepped) -> Figures:
    """Return how far the worst rank is from what it should hold, or from the first of its group."""
    worst, first = Figures(0.0, 0.0), next(iter(one.after.values()))
    for rank in one.wrong:
        right = first if one.right is None else one.parts.share(rank, one.after, one.right[1])
        if right is not None and right.shape == one.after[rank].shape:
            found = difference(right, one.after[rank])
            worst = max(worst, Figures.of(found), key=lambda size: size.rel_l2)
    return worst
