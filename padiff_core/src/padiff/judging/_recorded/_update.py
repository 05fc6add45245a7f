"""Judge what the step of two recorded runs made of the parameters, by the gradients that it was given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.judging._causes import not_verified
from padiff.judging._optimizer_step import contrast, numbers_of, of_one_cause, of_one_setting, only_rules
from padiff.judging._parameters import finding_of_link, is_ignored
from padiff.judging._parts import Ignored
from padiff.judging._recorded._averages import as_one_average, averages_of, is_scripts, is_untouched, tell_all
from padiff.judging._recorded._by_chance import beside_chance, longest_step, projected_alike
from padiff.judging._recorded._given_gradients import (
    GivenGradient,
    given_gradients,
    shares_of,
    with_what_was_given,
)
from padiff.judging._recorded._levels import together
from padiff.judging._recorded._meter import Meter
from padiff.judging._recorded._script_notes import unlike_numbers
from padiff.judging._recorded._step_sums import is_left_by_several, step_sums
from padiff.judging._recorded._two_steps import Step
from padiff.judging._sizes import Size, elements, norm_of
from padiff.numerics import ACCUMULATED, ACCUMULATION, EXACT, FLOORS, SAME, UNSETTLED, epsilon_of
from padiff.parameters import Correspondence, Link, UnitMatch
from padiff.report import SIDES, Cause, Evidence, Figures, Finding, Phase
from padiff.trace import Trace

Handed = tuple[dict[str, GivenGradient], dict[str, GivenGradient]]
"""What both sides' optimizers were given, by the paths of parameters."""


def gradients_apart(meter: Meter, known: Correspondence) -> Iterator[tuple[str, float]]:
    """Yield how far apart rounding left the gradients of the candidate's parameters: infinitely, if more than values.

    What an optimizer keeps of them is as far apart, and so are its later steps. What comes behind its step is none
    of that, nor what comes to what neither side's optimizers step by then.
    """
    for _, link in known.links:
        if not link.buffer and link.differentiated and not is_untouched(link, meter):
            size = meter.of_link(link, "used")
            if size is not None and not size.difference.equal:
                yield link.candidate.parameter.path, size.error if size.error <= SAME(size.eps) else math.inf


def of_recorded_update(
    meter: Meter,
    known: Correspondence,
    ignored: Ignored,
    step: int,
    earlier: Mapping[str, float],
    *,
    agreed: bool = False,
    before: tuple[Trace, Trace] | None = None,
) -> Iterator[Finding]:
    """Yield the parameters that the step left with other values than their gradients explain.

    ``earlier`` is how far apart the gradients of the steps before were, which an optimizer may keep; where infinitely,
    only how far a step went is held against the reference's. Where both sides ``agreed`` on an earlier step, the rules
    by which they compute are no cause: these are of every step.
    ``before`` is the step before this one.
    """
    meter.ahead(meter.parameter_pairs(known, "updated"))
    found, near, by_chance = [], [], dict[Link, bool]()
    links = [(match, link) for match, link in known.links if not link.buffer and link.differentiated]
    known_given = all(map(given_gradients, meter.traces))
    noise = together(meter, [link for _, link in links], "arrived") if known_given else 0.0
    # Whether each side's optimizer was given any gradient smaller than it arrived.
    clipped = all(any(one.times < 1 for one in given_gradients(trace).values()) for trace in meter.traces)
    shared = FLOORS * noise if clipped else 0.0
    stepped = [link for _, link in links if not is_scripts(link, meter)]
    for match, link in links:
        size = meter.of_link(link, "updated")
        if size is None or size.difference.equal or is_ignored(match, link, ignored):
            continue
        if size.close is None and not size.error > EXACT(size.eps):
            continue  # however far the step went
        done = _step(meter, match, link, size.eps)
        kept = earlier.get(link.candidate.parameter.path, 0.0)
        if kept == math.inf:
            if done is None or done.gradients is None:
                continue
            kept, done = 0.0, attrs.evolve(done, scale=math.inf)
        if not size.close if size.close is not None else _exceeds(meter, match, link, size, done, shared, kept):
            moved = averages_of(meter, link, stepped, size.eps) if is_scripts(link, meter) else None
            if moved is None or not moved.alike:
                finding = _finding(match, link, size, done, step)
                if done is not None and done.by_rounding and not unlike_numbers(meter, link):
                    by_chance[link] = done.reaches(longest_step(meter, match))
                found.append((link, finding if moved is None else attrs.evolve(finding, cause=moved.cause)))
        elif size.close is None and done is not None:
            sent = meter.of_link(link, "arrived")
            apart, contrasts = size.eps if sent is None else sent.error, bool(unlike_numbers(meter, link))
            if done.is_another(max(apart, kept), contrasts=contrasts):
                near.append((link, _finding(match, link, size, done, step)))
    if 2 * len(near) > len(links):  # by chance a few are
        found = found or near
    found = beside_chance(found, by_chance)
    found = as_one_average(found)
    handed = _handed(meter, links) if found else ({}, {})
    found = _with_causes(found, meter, handed, noise, agreed=agreed)
    found = found or list(_given_otherwise(meter, links, ignored, step, noise))
    told = with_what_was_given([finding for _, finding in found], meter.traces, before, meter.cleared)
    found = [(link, finding) for (link, _), finding in zip(found, told, strict=True)]
    scripts = {link: is_scripts(link, meter) and not one.is_caused_by("average_keeps") for link, one in found}
    if not all(scripts.values()):  # what a script moves itself may follow from what is stepped
        found = [(link, attrs.evolve(one, source=one.source and not scripts[link])) for link, one in found]
    yield from of_one_cause(found, meter.models, len({link.candidate.parameter.path for _, link in links}))


def _given_otherwise(
    meter: Meter, links: Sequence[tuple[UnitMatch, Link]], ignored: Ignored, step: int, noise: float
) -> Iterator[tuple[Link, Finding]]:
    """Yield what one optimizer with the same settings steps by other shares of what arrived on both sides.

    Adam's first step is as long whatever clips the gradients, and behind narrower types nothing else shows it.
    """
    handed = _handed(meter, links)
    for match, link in links if all(handed) else ():
        ours, theirs = (_but_for_clipping(found) for found in meter.settings(link))
        given = [one.get(path) for one, path in zip(handed, _paths(link), strict=True)]
        alike = of_one_setting(ours, theirs)
        size = meter.of_link(link, "updated")
        if size is None or not alike or is_ignored(match, link, ignored) or given[0] is None or given[1] is None:
            continue
        if given[0].differs(given[1], noise):
            cause = Cause("optimizer_settings", {"gradients": _shares(handed)}, verified=True)
            evidence = (Evidence.of("given_otherwise"),)
            finding = _finding(match, link, size, _step(meter, match, link, size.eps), step)
            yield link, attrs.evolve(finding, cause=cause, evidence=evidence)


def _handed(meter: Meter, links: Sequence[tuple[UnitMatch, Link]]) -> Handed:
    """Return what both sides' optimizers were given of what arrived, whose norm one side may tell for both."""
    norms: tuple[dict[str, float], dict[str, float]] = {}, {}
    summed = any(one.norm is None for trace in meter.traces for one in trace.summaries.values())
    for _, link in links if summed else ():
        if (
            (size := meter.of_link(link, "arrived")) is not None
            and size.error <= SAME(size.eps)
            and link.single
            and not link.packed
        ):
            most = max(map(norm_of, meter.held(link, "arrived")))
            for mine, path in zip(norms, _paths(link), strict=True):
                mine[path] = most
    sides = zip(meter.traces, norms, meter.cleared, strict=True)
    ours, theirs = (given_gradients(trace, norms=own, cleared=paths) for trace, own, paths in sides)
    return ours, theirs


def _paths(link: Link) -> tuple[str, str]:
    return link.reference.parameter.path, link.candidate.parameter.path


def _finding(match: UnitMatch, link: Link, size: Size, done: Step | None, step: int) -> Finding:
    figures = {
        "step_rel_l2": 0.0 if done is None else done.moved,
        "rel_l2": size.error if done is None else done.difference,
    }
    return finding_of_link(
        match,
        link,
        Phase.UPDATE,
        "updated_parameter",
        Evidence("update_of_runs", figures),
        figures=Figures.of(size.difference),
        cause=None if done is None else done.cause,
        step=step,
    )


def _with_causes(
    found: Sequence[tuple[Link, Finding]], meter: Meter, handed: Handed, noise: float, *, agreed: bool
) -> list[tuple[Link, Finding]]:
    """Return findings with what the optimizers do otherwise, where both were recorded, by the rules of `diff`.

    What the step of one parameter verifies, a rate say, is the cause of all that have the same settings.
    """
    causes = [_settings_cause(link, finding, meter, handed, noise, agreed=agreed) for link, finding in found]
    verified = {str(cause) for cause in causes if cause is not None and cause.verified}
    named = []
    for (link, finding), cause in zip(found, causes, strict=True):
        if is_scripts(link, meter):
            finding = attrs.evolve(finding, cause=cause, evidence=(*finding.evidence, Evidence("changed_by_script")))
        elif cause is not None and str(cause) in verified:
            finding = attrs.evolve(finding, cause=attrs.evolve(cause, verified=True))
        elif cause is not None:
            finding = attrs.evolve(finding, evidence=(*finding.evidence, not_verified(cause)))
        elif (said := _without_settings(link, finding, meter, handed)) is not None:
            finding = attrs.evolve(finding, evidence=(*finding.evidence, said))
        named.append((link, finding))
    return named


def _without_settings(link: Link, finding: Finding, meter: Meter, handed: Handed) -> Evidence | None:
    """Return that the settings of both optimizers agree, and what they were given, where both tell."""
    ours, theirs = meter.settings(link)
    told = all(path in one for one, path in zip(handed, _paths(link), strict=True))
    stepped = finding.cause is None or finding.cause.name != "not_stepped"
    return Evidence("same_settings") if ours and theirs and told and stepped else None


def _settings_cause(
    link: Link, finding: Finding, meter: Meter, handed: Handed, noise: float, *, agreed: bool
) -> Cause | None:
    """Return the settings that differ where a parameter is stepped on both sides; None where nobody says.

    Where both runs tell what gradients the optimizers were given, that tells more than one side's setting of clipping.
    """
    paths, known, times = _paths(link), finding.cause, None
    if is_scripts(link, meter):
        return known and attrs.evolve(known, parameters={**known.parameters, "script": True})
    ours, theirs = (dict(found or {}) for found in meter.settings(link))
    if known is not None and known.name == "not_stepped":
        sides = list(zip(paths, meter.traces, strict=True))
        if all(trace.parameter_gradients and path not in trace.parameter_gradients for path, trace in sides):
            return attrs.evolve(known, parameters={**known.parameters, "ungraded": True})
        if any(path not in trace.handed for path, trace in sides):
            return None
        times = 0.0 if known.parameters["side"] == SIDES[1] else math.inf  # it is stepped, and by nothing
    elif known is not None:
        times = known.parameters.get("times")
    given = [known.get(path) for known, path in zip(handed, paths, strict=True)]
    told = given[0] is not None and given[1] is not None
    if told and not ("clip" in ours and "clip" in theirs):
        ours, theirs = map(_but_for_clipping, (ours, theirs))
    cause = contrast(ours, theirs, times)
    cause = None if cause is None or cause.name == "step_scaled" else cause
    if cause is not None and agreed and only_rules(cause, ours, theirs):
        cause = attrs.evolve(cause, verified=False)
    if given[0] is None or given[1] is None or not given[0].differs(given[1], noise):
        return cause
    found = {} if cause is None or only_rules(cause, ours, theirs) else cause.parameters
    return Cause("optimizer_settings", {**found, "gradients": _shares(handed)}, verified=True)


def _is_left(link: Link, meter: Meter, done: Step) -> bool:
    """Return whether one side leaves a parameter as it is, which is none of what its optimizers step."""
    lone = tell_all(meter) and meter.settings(link).count(None) == 1
    return lone and done.cause is not None and done.cause.name == "not_stepped"


def _but_for_clipping(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an optimizer's settings without that of clipping: some clip themselves, for others the script does."""
    return {name: value for name, value in (settings or {}).items() if name != "clip"}


def _shares(handed: Handed) -> dict[str, Any]:
    return dict(zip(SIDES, map(shares_of, handed), strict=True))


def _step(meter: Meter, match: UnitMatch, link: Link, eps: float) -> Step | None:
    """Return what both sides did to a parameter; None where its values were not kept."""
    after = meter.held(link, "updated")
    started, ended = (projected_alike(both) for both in (meter.held(link, "before"), after))
    if started is None or ended is None or started[0].shape != ended[0].shape:
        return None
    rates = [numbers_of((found or {}).get("lr", 1)) for found in meter.settings(link)]
    alone = "lr" in unlike_numbers(meter, link) and len(rates[0]) == len(rates[1]) == 1
    rate = rates[1][0] / (rates[0][0] or math.inf) if alone else 1.0
    given = (elements(one) for one in meter.held(link, "arrived"))
    sent = [one for one in given if one is not None and one.shape == started[0].shape]
    known = len(sent) == 2 and all(elements(one) is not None for one in after)
    others = [one for one in match.links if not one.buffer and one.differentiated]
    if not known and all(_is_rounding(trace, others, link, side) for side, trace in enumerate(meter.traces)):
        nothing = np.zeros_like(started[0]), np.zeros_like(started[0])
        return Step(started, ended, nothing, 1.0, eps, rate)
    scale = max(meter.scale(one, "arrived") for one in others)
    return Step(started, ended, (sent[0], sent[1]) if known else None, scale, eps, rate)


def _is_rounding(trace: Trace, links: Sequence[Link], link: Link, side: int) -> bool:
    """Return whether the gradient that a side's optimizer was given is rounding, beside others of its module.

    So sharded parameters tell it, whose gradients are reduced where nothing of them is kept.
    """
    given = {one: trace.summaries.get(trace.handed.get(_paths(one)[side], -1)) for one in links}
    sizes = {
        one: told.norm / math.sqrt(math.prod(told.shape) or 1) for one, told in given.items() if told and told.norm
    }
    eps = epsilon_of(trace.parameters[_paths(link)[side]].dtype)
    return link in sizes and sizes[link] <= SAME(eps) * max(sizes.values())


def _exceeds(
    meter: Meter, match: UnitMatch, link: Link, size: Size, done: Step | None, shared: float, earlier: float
) -> bool:
    """Return whether two steps from equal gradients, but for rounding, can lead so far apart.

    By ``shared`` the norm of all gradients, by which each is clipped, lets each step be apart, and what optimizers keep
    of ``earlier`` gradients by how far apart those were.
    Of elements that lie as dense around zero as elsewhere, those that are rounding alone move the step by the square
    root of the gradient's relative error. Settings that differ are seen by less than what nothing tells.
    """
    sent = meter.of_link(link, "arrived")
    noise = max(size.eps, 0.0 if sent is None else sent.error)
    unlike = bool(unlike_numbers(meter, link))
    least, times = (UNSETTLED(size.eps), FLOORS) if unlike else (ACCUMULATED(size.eps), ACCUMULATION)
    least = max(least, shared, times * earlier)
    allowed = max(least, ACCUMULATION * math.sqrt(noise))
    if sent is None:
        allowed = max(allowed, EXACT(max(_computed_with(match, meter.traces))))
    if done is None:
        return size.error > max(allowed, EXACT(size.eps))
    if done.shows_rate or _is_left(link, meter, done):
        return True
    if done.gradients is not None:
        sums = step_sums(done.before, done.after, done.gradients, done.scale, done.eps, apart=noise)
        if not sums.exceeds(done.eps, least, times=times):
            return False
        counts = [(found or {}).get("steps", 1) for found in meter.settings(link)]
        longest = longest_step(meter, match)
        if counts[0] == counts[1] != 1 and not unlike and is_left_by_several(sums, longest, size.eps):
            return False
        ours, theirs = _computed_with(match, meter.traces)
        return ours == theirs or sums.exceeds(done.eps, least, longest, times=times)
    return done.difference > max(allowed * done.moved, EXACT(size.eps))


def _computed_with(match: UnitMatch, traces: tuple[Trace, Trace]) -> tuple[float, float]:
    """Return, of each side, the epsilon of the coarsest type in which a module gave values."""
    paths = match.modules.reference, match.modules.candidate
    ours, theirs = (
        max((epsilon_of(leaf.dtype) for call in trace.calls if call.path == path for leaf in call.outputs), default=0.0)
        for trace, path in zip(traces, paths, strict=True)
    )
    return ours, theirs
