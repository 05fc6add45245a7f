"""Compare one optimizer step: both sides from the same weights and the same gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.forcing import Given, Side, gradients_of
from padiff.grouping import grouped
from padiff.judging._causes import not_verified
from padiff.judging._findings import place_around, size_in
from padiff.judging._metrics import Measures
from padiff.judging._parameters import finding_of_link, is_ignored, tied
from padiff.judging._parts import Ignored
from padiff.judging._sizes import multiple
from padiff.judging._tolerance import Rule
from padiff.kinds import EPS_PLACE, is_optimizer_family, is_optimizer_rule
from padiff.numerics import ACCUMULATED, EXACT, FLOORS, SAME, Array, difference, epsilon, epsilon_of
from padiff.parameters import Correspondence, Link, UnitMatch, canonical, values_of
from padiff.report import SIDES, Cause, Evidence, Figures, Finding, Phase, Verdict, What
from padiff.trace import Description, Trace

_Held = Mapping[str, Mapping[str, Any]] | None
_SHOWN = 3
"""How many groups' settings a cause tells."""


def step_both(
    sides: tuple[Side, Side],
    given: tuple[Given, Given],
    correspondence: Correspondence,
    trace: Trace,
    step: int,
    ignored: Ignored,
    rule: Rule | None,
    measures: Measures,
) -> tuple[list[Finding], bool]:
    """Give both sides the reference's gradients, let both optimizers step, and judge the weights after.

    Return also whether either of them moved a parameter: what agrees shows nothing of steps that move none. Parameters
    of modules whose paths are in ``ignored`` are not judged. ``rule`` is the user's own: whether a candidate's array
    (second) is close enough to the reference's (first). ``measures`` are the metrics of plugins.
    """
    reference, candidate = sides
    links = [(match, link) for match, link in correspondence.links if not link.buffer]
    before = {link: np.array(_ours(link, sides)) for _, link in links if link.differentiated}
    recorded = trace.parameter_gradients
    paths = [path for path, parameter in reference.about.parameters.items() if not parameter.buffer]
    reference.step({path: trace.array(recorded[path]) if path in recorded else None for path in paths})
    candidate.step(_gradients(links, trace))
    found = []
    seen = set()
    # What several parameters of the reference were copied to is tied on one side alone: told of the parameters.
    told = [(match, link) for match, link in links if not is_ignored(match, link, ignored)]
    several = {link for group in tied(told, ours=False) for _, link in group}
    stepped = _held(given, before, sides)
    if before and stepped == ({}, {}):
        return [] if step else [_of_none(len(before), (reference.about, candidate.about))], True
    for match, link in links:
        held = link.reference.parameter.path, link.reference.part, link.candidate.parameter.path, link.candidate.part
        judged_here = link.differentiated and link not in several and held not in seen
        if judged_here and not is_ignored(match, link, ignored):
            values = _values(link, sides)
            finding = _judge(match, link, values, before[link], step, rule, measures)
            if finding is not None:
                cause = _cause(link, given, stepped, rate_between(values, before[link], told=True))
                evidence = finding.evidence
                if cause is not None and not cause.verified:
                    evidence, cause = (*evidence, not_verified(cause)), None
                found.append((link, attrs.evolve(finding, cause=cause, evidence=evidence)))
        seen.add(held)  # what is shared between modules is judged once
    judged = {x.candidate.parameter.path for _, x in links if x.differentiated}
    moved = bool(found) or not before or _has_moved(0, before, sides)
    return list(of_one_cause(found, (reference.about, candidate.about), len(judged))), moved


def of_one_cause(
    found: Sequence[tuple[Link, Finding]], models: tuple[Description, Description], judged: int
) -> Iterator[Finding]:
    """Yield one finding for each cause: an optimizer that does otherwise does so to a whole group of parameters.

    It is placed at the innermost module that holds them all. What is computed for each parameter by itself (a ratio of
    norms) is one cause too, though of each by another factor, and so is a setting that each group of an optimizer's has
    its own of (a rate, by a schedule). A step of one element is a multiple of any other.
    """
    groups: dict[object, list[tuple[Link, Finding]]] = {}
    for link, finding in sorted(found, key=lambda one: _is_number(one[0])):
        key = _key(finding.cause, groups)
        if _is_number(link) and isinstance(key, float) and key not in groups:
            alike = next((one for one in groups if one is None or _is_place(one)), key)
            if alike in groups:
                key, finding = alike, attrs.evolve(finding, cause=groups[alike][0][1].cause)
        groups.setdefault(key, []).append((link, finding))
    rest = groups.get(None, [])
    for key in [one for one in groups if isinstance(one, float) and _elements(groups[one]) < _elements(rest)]:
        # A multiple at a few elements (biases, which do not decay, say), and no multiple at most, is one thing.
        rest += [(link, attrs.evolve(finding, cause=None)) for link, finding in groups.pop(key)]
    scaled = [key for key in groups if isinstance(key, float)]
    if len(scaled) > 1:
        groups[tuple(scaled)] = [one for key in scaled for one in groups.pop(key)]
    for key, group in groups.items():
        shown = [finding for link, finding in group if not _is_number(link)] or [finding for _, finding in group]
        worst = max(shown, key=lambda one: (one.source, size_in(one)))
        if isinstance(key, tuple) and worst.cause is not None:
            besides = {name: value for name, value in worst.cause.parameters.items() if name != "times"}
            among = {"least": min(key), "most": max(key), **besides}
            worst = attrs.evolve(worst, cause=Cause("step_scaled", among, verified=True))
        if isinstance(key, frozenset):
            worst = attrs.evolve(worst, cause=_of_all_groups([one.cause for _, one in group if one.cause is not None]))
        names = list(dict.fromkeys(x.candidate.parameter.path for x, _ in group))
        if len(names) == 1:  # several of the reference may lie in one
            number = isinstance(key, float) and _is_number(group[0][0]) and worst.rests_on("same_settings")
            yield attrs.evolve(worst, cause=None) if number else worst
            continue
        paths = [[held.parameter.path for held in (x.reference, x.candidate)] for x, _ in group]
        reference, candidate = map(place_around, models, zip(*paths, strict=True))
        evidence = Evidence.of("stepped_alike", paths=names, of=judged)
        yield attrs.evolve(
            worst,
            reference=reference,
            candidate=candidate,
            what=What("updates", f"{len(names)} parameters"),
            evidence=(evidence, *worst.evidence),
        )


def _elements(group: Sequence[tuple[Link, Finding]]) -> int:
    return sum(math.prod(link.candidate.shape) for link, _ in group)


def _is_number(link: Link) -> bool:
    return math.prod(link.candidate.shape) == 1


def _is_place(key: object) -> bool:
    """Return whether what findings have in common is where the optimizers add their epsilon: that makes no multiple."""
    return isinstance(key, frozenset) and bool(key) and all(one.endswith(EPS_PLACE) for one in key)


def _key(cause: Cause | None, known: Mapping[object, Any]) -> object:
    """Return what findings of one cause have in common; of a scaled step the factor, but for its last digits."""
    if cause is None or cause.name != "step_scaled":
        return None if cause is None else _settings_of(cause) or str(cause)
    times = cause.parameters["times"]
    others = [one for one in known if isinstance(one, float)]
    return next((one for one in others if abs(one - times) <= SAME(epsilon_of("float32")) * abs(times)), float(times))


def _ours(link: Link, sides: tuple[Side, Side]) -> Array:
    values = link.expected(values_of(sides[0]))
    return canonical(link.candidate, sides[1].value(link.candidate.parameter.path)) if values is None else values


def _values(link: Link, sides: tuple[Side, Side]) -> tuple[Array, Array]:
    return _ours(link, sides), canonical(link.candidate, sides[1].value(link.candidate.parameter.path))


def _held(given: tuple[Given, Given], before: Mapping[Link, Array], sides: tuple[Side, Side]) -> tuple[_Held, _Held]:
    """Return what each optimizer steps with which settings: nothing, where it is known to hold none and moved none."""

    def held(index: int) -> _Held:
        known = given[index]
        if known.stepped is not None or not known.optimizer:
            return known.stepped
        return None if _has_moved(index, before, sides) else {}

    return held(0), held(1)


def _has_moved(index: int, before: Mapping[Link, Array], sides: tuple[Side, Side]) -> bool:
    return any(not np.array_equal(_values(link, sides)[index], start) for link, start in before.items())


def _of_none(count: int, models: tuple[Description, Description]) -> Finding:
    """Return that both optimizers hold none of the parameters: no step was taken that could be compared."""
    ours, theirs = (place_around(model, list(model.parameters)) for model in models)
    what, evidence = What("updates", f"{count} parameters"), (Evidence("held_by_none"),)
    return Finding(Verdict.UNMATCHED, Phase.UPDATE, ours, theirs, what, evidence=evidence)


def _gradients(links: Sequence[tuple[UnitMatch, Link]], trace: Trace) -> dict[str, Array | None]:
    """Return the gradients of the candidate's parameters, as the reference's tell them."""
    recorded = gradients_of(trace)
    found: dict[str, Array | None] = {}
    for _, link in links:
        values = link.gradient(recorded) if link.differentiated else None
        parameter = link.candidate.parameter
        native = found.get(parameter.path)
        if values is not None:
            native = np.zeros(parameter.shape, values.dtype) if native is None else native
            link.candidate.part.write(native, values)
        found[parameter.path] = None if values is None else native
    return found


def _judge(
    match: UnitMatch,
    link: Link,
    values: tuple[Array, Array],
    before: Array,
    step: int,
    rule: Rule | None,
    measures: Measures,
) -> Finding | None:
    ours, theirs = values
    apart = difference(ours, theirs)
    rounded = max(EXACT(epsilon(ours.dtype)), epsilon(theirs.dtype))  # once, to a narrower type that the candidate has
    if apart.equal or (rule(ours, theirs) if rule else apart.rel_l2 <= rounded):
        return None
    moved = difference(ours, before)
    if rule is None and apart.rel_l2 <= ACCUMULATED(epsilon(ours.dtype)) * moved.rel_l2:
        return None
    evidence = Evidence.of("update", step_rel_l2=moved.rel_l2, rel_l2=apart.rel_l2)
    figures = Figures.of(apart, measures(ours, theirs))
    return finding_of_link(match, link, Phase.UPDATE, "updated_parameter", evidence, figures=figures, step=step)


def rate_between(values: tuple[Array, Array], before: Array, *, told: bool = False) -> float | None:
    """Return how many times the reference's step the candidate's is; None where it is another in more than size.

    As what is ``told`` of steps that differ a factor is none where what it leaves unexplained is about as much.
    """
    ours, theirs = (value.astype(np.float64) - before.astype(np.float64) for value in values)
    length = min(float(np.linalg.norm(step)) for step in (ours, theirs))
    if not length:
        return None
    times, _ = multiple(ours, theirs)
    eps = epsilon(before.dtype)
    rounded = EXACT(eps) * float(np.linalg.norm(before)) / length
    left = difference(times * ours, theirs).rel_l2
    most = min(max(ACCUMULATED(eps), rounded), abs(times - 1) / FLOORS if told else math.inf)
    return times if left <= most else None


def _cause(link: Link, given: tuple[Given, Given], stepped: tuple[_Held, _Held], times: float | None) -> Cause | None:
    """Return what the optimizers do otherwise with one parameter: leave it out, or step it with other settings.

    A learning rate alone is held against the figures: the step is as many times the reference's as the rate is.
    """
    paths = link.reference.parameter.path, link.candidate.parameter.path
    if stepped[0] is None or stepped[1] is None:
        return contrast(given[0].optimizer, given[1].optimizer, times)
    ours, theirs = stepped[0].get(paths[0]), stepped[1].get(paths[1])
    if (ours is None) is not (theirs is None):
        return Cause("not_stepped", {"side": SIDES[ours is not None]}, verified=True)
    return contrast(ours or {}, theirs or {}, times)


def _settings_of(cause: Cause) -> frozenset[str]:
    """Return the names of settings that are a cause, where each is one on either side."""
    settings = cause.parameters if cause.name == "optimizer_settings" else {}
    plain = all(isinstance(value, str) for told in settings.values() for value in told.values())
    return frozenset(settings) if plain else frozenset()


def _of_all_groups(causes: Sequence[Cause]) -> Cause:
    """Return one cause, with what each group of an optimizer's has as a setting that differs in all of them."""
    told = {}
    for name in causes[0].parameters:
        pairs = list(dict.fromkeys(tuple(one.parameters[name][side] for side in SIDES) for one in causes))
        shown = pairs if len(pairs) <= _SHOWN else [*pairs[:_SHOWN], ("...", "...")]
        sides = zip(SIDES, zip(*shown, strict=True), strict=True)
        told[name] = {side: each[0] if len(set(each)) == 1 else ", ".join(each) for side, each in sides}
    return attrs.evolve(causes[0], parameters=told, verified=all(one.verified for one in causes))


def contrast(ours: Mapping[str, Any], theirs: Mapping[str, Any], times: float | None) -> Cause | None:
    """Return the optimizers' hyper-parameters that differ; of none, by how much the step is another.

    By what rules two frameworks compute is told where no hyper-parameter differs: it is so in each of their pairs.
    """
    names = [name for name in dict.fromkeys((*ours, *theirs)) if not _same(ours.get(name), theirs.get(name))]
    names = names if ours and theirs else []
    chosen = [one for one in names if not _is_rule(one, ours, theirs)]
    rules = [one for one in names if one not in chosen and not one.endswith(EPS_PLACE)]  # that may make a multiple
    alone = times is not None and (not rules or _is_ratio(ours, theirs, times))  # so does a rate alone
    if chosen and (chosen != ["lr"] or alone):
        names = chosen
    elif "class" in names:  # which says nothing of the rules
        names = ["class"]
    sides = list(zip(SIDES, (ours, theirs), strict=True))
    found = {
        name: {side: shown_setting(own.get(name, 1 if name == "steps" else None)) for side, own in sides}
        for name in names
    }
    if not found or (times is not None and all(one.endswith(EPS_PLACE) for one in names)):  # no multiple either
        return None if times is None else Cause("step_scaled", {"times": times}, verified=True)
    # Both are of families that padiff knows, and had the same weights and gradients: nothing but settings is left.
    verified = _is_ratio(ours, theirs, times) if list(found) == ["lr"] else True
    return Cause("optimizer_settings", found, verified=verified)


def of_one_setting(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether optimizers of families that padiff knows have the same hyper-parameters, whatever their rules."""
    if not (ours and theirs) or (cause := contrast(ours, theirs, None)) is None:
        return bool(ours and theirs)
    known = all(is_optimizer_family(one.get("class")) for one in (ours, theirs))
    return known and all(name == "class" or is_optimizer_rule(name) for name in cause.parameters)


def only_rules(cause: Cause, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether optimizers' settings that differ are no hyper-parameters, but how each computes, in every step."""
    return all(_is_rule(name, ours, theirs) for name in cause.parameters)


def _is_rule(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether it is a rule of a framework's, or the name of a class that says nothing of how it computes."""
    families = (is_optimizer_family(one.get("class")) for one in (ours, theirs))
    return is_optimizer_rule(name) or (name == "class" and not all(families))


def _is_ratio(ours: Mapping[str, Any], theirs: Mapping[str, Any], times: float | None) -> bool:
    rates = [numbers_of(one.get("lr")) for one in (ours, theirs)]
    if times in (0.0, math.inf):
        return 0 in rates[times == 0.0]
    pairs = [pair for pair in itertools.product(*rates) if all(pair)] if times is not None else []
    return any(abs((times or 0.0) * pair[0] / pair[1] - 1) <= SAME(0.0) ** 0.5 for pair in pairs)


def numbers_of(value: Any) -> list[float]:
    """Return the number that a setting is, or those that it is on ranks; none where it is no number."""
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    return values if all(isinstance(one, int | float) and not isinstance(one, bool) for one in values) else []


def shown_setting(value: Any) -> Any:
    """Return a setting as it is shown: a text, or which ranks have which."""
    if isinstance(value, Mapping):
        ranks = grouped(value, lambda rank: shown_setting(value[rank]))
        return {"values": list(ranks), "ranks": list(ranks.values())}
    if isinstance(value, float):
        return repr(float(f"{value:.9g}"))
    return "(none)" if value is None else repr(value)


def _same(a: Any, b: Any) -> bool:
    """Return whether two settings are one: some optimizers compute their rate in float32, which no step can show."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        near = abs(a - b) <= EXACT(epsilon_of("float32")) * max(abs(a), abs(b))
        return near or repr(a) == repr(b)  # a limit of infinity is one
    return bool(a == b) or (not a and not b)
