"""Look for why a value differs: a setting that puts it right, a value in another's place, a module that is not called.

A call is replayed by itself in float64, fed with the reference's own values, where two values that agree are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Alignment, Pair
from padiff.forcing import Forced, Spot
from padiff.judging._causes import OF_PARAMETERS, OF_STATE, as_parameters, cause_between
from padiff.judging._forced._question import Question
from padiff.judging._forced._settle import BothRuns, Settler
from padiff.judging._likeness import likeness, named_around
from padiff.judging._suspicion import Ruling, Suspicion
from padiff.numerics import CAST, TOGETHER, difference, epsilon, epsilon_of
from padiff.parameters import Correspondence, UnitMatch
from padiff.paths import below, innermost
from padiff.report import Cause, Evidence, Phase, Verdict
from padiff.trace import Contrast, Described, Trace, contrasts


def found_by_setting(settler: Settler, asked: Question, matches: Sequence[UnitMatch]) -> Cause | None:
    """Return the settings that differ as the cause; verified where the candidate, set as the reference is, agrees.

    They are the module's own, or those of modules inside that are judged with the code around them: a norm of one side
    holds its activation.
    """
    groups: dict[Cause, dict[str, Mapping[str, Any]]] = {}
    for path, found, wanted in _with_other_settings(settler.bench.alignment, asked.pair, matches):
        groups.setdefault(Cause("settings", as_parameters(found)), {})[path] = wanted
    for cause, all_wanted in groups.items():
        if _agrees(settler, asked, all_wanted):
            return attrs.evolve(cause, verified=True)
    return next((cause for cause, all_wanted in groups.items() if "" not in all_wanted), None)


def _with_other_settings(
    alignment: Alignment, pair: Pair, matches: Sequence[UnitMatch]
) -> Iterator[tuple[str, list[Contrast], dict[str, Any]]]:
    """Yield the paths of modules, below the pair's, with settings that differ, and what these are in the reference.

    Below it are those that no call of the reference is fed to: without a counterpart, or given another shape there.
    """
    top = pair.candidate
    calls = [(call, alignment.of_candidate(call)) for call in top.subtree() if call is not top]
    inside = {call.path for call, one in calls if one is None}
    units = ((match.candidate.module.path, match) for match in matches if match.candidate.module.path in inside)
    sides: list[tuple[str, Described, Described]] = [("", pair.reference, top)]
    sides += [(below(path, top.path), match.reference, match.candidate) for path, match in units]
    sides += [(below(call.path, top.path), one.reference, call) for call, one in calls if one and one.misfed]
    for path, ours, theirs in sides:
        known = set(ours.settings) - OF_STATE
        found = [one for one in contrasts(ours, theirs) if one.setting in known]
        if found:
            yield path, found, {one.setting: ours.settings[one.setting].value for one in found}


def _agrees(settler: Settler, asked: Question, wanted: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the candidate's call gives what the reference's gives where modules are set so, if they can be."""
    if any(not OF_PARAMETERS.isdisjoint(settings) for settings in wanted.values()):
        return False
    alone = settler.runs(asked.pair, "float64").reference
    if alone is None:
        return False
    other = settler.bench.tried(asked.pair, False, alone.observed, dtype="float64", settings=wanted, backward=False)
    ours, theirs = asked.read(alone, True), None if other is None else asked.read(other, False)
    return not (ours is None or theirs is None) and difference(ours, theirs).rel_l2 <= TOGETHER(epsilon(ours.dtype))


def likened(ruling: Ruling, asked: Question, spot: Spot, settler: Settler) -> Ruling:
    """Return the ruling on a value that a call's code makes, or on its gradient, with how it is like the reference's.

    What both sides of the call do by themselves tells, in float64 where they run in it.
    """
    gradient = asked.backward
    runs = _unexplained(ruling, asked, settler)
    if runs is None or runs.reference is None:
        return ruling
    ours, theirs = runs.values(asked.read)
    if ours is None or (theirs is None and not gradient):
        return ruling
    # Of what is put in, which is rounded as it was recorded, the code makes its own.
    value = runs.reference.observed.gradient if gradient else settler.bench.trace.value
    around = named_around(asked.pair, spot, settler.bench.alignment)
    named = ((name, value(leaf)) for name, leaf in around if leaf.token != spot.reference.token)
    known = ((name, one) for name, one in named if one is not None)
    theirs = np.zeros_like(ours) if theirs is None else theirs
    return _with(ruling, likeness(ours, theirs, known, CAST(epsilon_of(spot.reference.dtype)), gradient=gradient))


def likened_of_parameter(ruling: Ruling, asked: Question, settler: Settler) -> Ruling:
    """Return the ruling on a parameter's gradient with how it is like the reference's, as `likened` does of values."""
    runs = _unexplained(ruling, asked, settler)
    ours, theirs = (None, None) if runs is None else runs.values(asked.read)
    one = theirs if ours is None else ours
    if one is None:
        return ruling
    ours, theirs = (np.zeros_like(one) if gradient is None else gradient for gradient in (ours, theirs))
    found = likeness(ours, theirs, (), CAST(asked.eps), gradient=True)
    if found is not None and found.kind == "no_gradient_comes":
        found = attrs.evolve(found, kind="parameter_without_gradient")
    return _with(ruling, found)


def _with(ruling: Ruling, found: Evidence | None) -> Ruling:
    return ruling if found is None else attrs.evolve(ruling, evidence=(found, *ruling.evidence))


def _unexplained(ruling: Ruling, asked: Question, settler: Settler) -> BothRuns | None:
    """Return both sides' runs, in float64 where they run in it, where what differs has no cause yet."""
    phase = Phase.BACKWARD if asked.backward else Phase.FORWARD
    if ruling.verdict is not Verdict.DIFFERS or ruling.hint is not None or cause_between(asked.pair, phase) is not None:
        return None
    both = (settler.runs(asked.pair, dtype, backward=asked.backward) for dtype in ("float64", None))
    return next((runs for runs in both if runs.reference is not None and runs.candidate is not None), None)


def with_uncalled_named(
    suspicions: Iterable[Suspicion], known: Correspondence, traces: tuple[Trace, Trace], forced: Forced
) -> Iterator[Suspicion]:
    """Yield the suspicions, each of a value that a module without use should have given with the module's name.

    The module is never called, and no gradient reaches its parameters: whoever copied it forgot to call it. Where the
    value that it should have given is wrong, that no gradient comes to them follows, whichever call holds it.
    """
    suspicions = list(suspicions)
    uncalled = list(_uncalled(known, traces, forced))
    made, holders = (dict(one) for one in (_made(uncalled, known, traces[0]), _holders(uncalled)))
    unused = {paths[0]: paths for _, paths in uncalled}
    wrong = {s.spot.reference.token for s in suspicions if s.spot and _differs(s) and s.phase is Phase.FORWARD}
    told = {paths for token, paths in made.items() if token in wrong}
    for one in suspicions:
        spot, held = one.spot, one.held
        paths = None if spot is None or one.phase is not Phase.FORWARD else made.get(spot.reference.token)
        kind = "uncalled"
        if held is not None and one.phase is Phase.BACKWARD:
            # What is called in its place has its gradient.
            paths = holders.get(held.parameter.path) or unused.get(one.pair.reference.path)
            if holders.get(held.parameter.path) in told and _differs(one):
                continue
            kind = "uncalled_holder"
        if paths is not None and _differs(one):
            said = Evidence(kind, {"reference": paths[0], "candidate": paths[1]})
            one = attrs.evolve(one, ruling=one.ruling.resting_on(said))
        yield one


def _differs(suspicion: Suspicion) -> bool:
    return suspicion.verdict is Verdict.DIFFERS


def _uncalled(
    known: Correspondence, traces: tuple[Trace, Trace], forced: Forced
) -> Iterator[tuple[UnitMatch, tuple[str, str]]]:
    """Yield the matches of modules that the candidate alone does not use, with both paths."""
    ours, theirs = (trace.by_module() for trace in traces)
    for match in known.matches:
        paths = match.reference.module.path, match.candidate.module.path
        held = {link.candidate.parameter.path for link in match.links}
        if held and paths[0] in ours and paths[1] not in theirs and held.isdisjoint(forced.reached):
            yield match, paths


_Uncalled = Iterable[tuple[UnitMatch, tuple[str, str]]]


def _made(uncalled: _Uncalled, known: Correspondence, trace: Trace) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the tokens of what the reference's counterparts of modules without use give, with both paths.

    That is also of what holds nothing but these: a block that the candidate leaves out.
    """
    partners = {paths[0]: paths[1] for _, paths in uncalled}
    units = {match.reference.module.path for match in known.matches if match.links}
    for call in reversed(trace.calls) if partners else ():  # a block's name says more than that of its last layer
        inside = units.intersection(one.path for one in call.subtree())
        if inside and inside <= partners.keys():
            theirs = innermost([partners[path] for path in inside])
            yield from ((leaf.token, (call.path, theirs)) for leaf in call.outputs)


def _holders(uncalled: _Uncalled) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the paths of the parameters of modules without use, with both modules'."""
    for match, paths in uncalled:
        yield from ((link.candidate.parameter.path, paths) for link in match.links)
