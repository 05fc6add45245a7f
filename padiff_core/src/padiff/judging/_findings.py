"""Make findings: name places by path and file:line, give causes, tell sources from what follows."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import attrs

from padiff.alignment import MAPPED, Alignment, Pair
from padiff.judging._causes import called_with, cause_between, not_verified
from padiff.judging._suspicion import UNMEASURED, Suspicion
from padiff.paths import below, is_at, joined, parent
from padiff.report import SIDES, Cause, Evidence, Finding, Matching, Phase, Place, Verdict, What
from padiff.trace import Call, Description, Frame


def place_of(call: Call, *, at: Call | None = None, path: str | None = None, stack: bool = True) -> Place:
    """Name a call's place. ``at`` is the child whose call marks the line of its parent's code, if one does."""
    module = call.module
    marks = (at or call).frames if stack else ()
    if (at or call).module.operation:
        marks = tuple(itertools.dropwhile(lambda frame: frame.library, marks))
    return Place(
        module.path if path is None else path,
        module.class_name,
        _location(call, at),
        call.ordinal,
        tuple(map(str, marks)),
    )


def at_line(place: Place, calls: Sequence[Call]) -> Place:
    """Return a place with the line of the last of some calls, if there is one."""
    if not calls:
        return place
    line = place_of(calls[-1])
    return attrs.evolve(place, location=line.location, stack=line.stack)


def called_at(call: Call) -> Place:
    """Name a call's place by the line that makes it, wherever its own code is."""
    place = place_of(call)
    return attrs.evolve(place, location=_line(call.frames) or place.location)


def _location(call: Call, at: Call | None) -> str | None:
    """Return ``file:line`` of the user's code: where the child is called, else where the code itself is.

    A module of the user's own is located at its forward; one of the framework's where the user calls it.
    """
    definition = call.module.definition
    if at is not None and at is not call and at.frames:
        # Wrappers without a match may lie between: the line is the one in the call's own code.
        own_lines = [f for f in at.frames if (f.file, f.start) == definition and not f.library]
        return _line(own_lines or at.frames)
    if definition is not None and (call.parent is None or _is_users(call, definition[0])):
        return f"{definition[0]}:{definition[1]}"
    return _line(call.frames)


def _is_users(call: Call, file: str) -> bool:
    """Return whether a file is not the framework's: some calling frame tells which files are."""
    frames = (frame for above in (call, *call.ancestors()) for frame in above.frames)
    return any(frame.file == file and not frame.library for frame in frames)


def _line(frames: Sequence[Frame]) -> str | None:
    frame = next((f for f in frames if not f.library), frames[0] if frames else None)
    return f"{frame.file}:{frame.line}" if frame else None


def place_around(model: Description, paths: Sequence[str]) -> Place:
    """Return the innermost module that holds some parameters, or modules."""
    holders = [[module for module in model.modules if is_at(path, module)] for path in paths]
    innermost = max(set(holders[0]).intersection(*holders[1:]), key=len)
    return Place(innermost, model.modules[innermost].module.class_name)


def as_one(
    group: Sequence[Finding], models: tuple[Description, Description], kind: str, noun: str, **changes: Any
) -> Finding:
    """Return findings on several parameters or buffers as one: the first, at the modules that hold all of them.

    Of more than one it is about so many, as a ``kind`` of value and a ``noun`` say, and lists them. ``evidence`` among
    the ``changes`` stands behind that.
    """
    paths = ([one.reference.path or "" for one in group], [one.candidate.path or "" for one in group])
    reference, candidate = map(place_around, models, paths)
    names = [joined(path, one.what.name) for path, one in zip(paths[1], group, strict=True)]
    changes["evidence"] = (Evidence.of("frozen_together", paths=names), *changes.get("evidence", ()))
    what = What(kind, f"{len(group)} {noun}") if len(group) > 1 else group[0].what
    return attrs.evolve(group[0], reference=reference, candidate=candidate, what=what, **changes)


def finding_at(
    pair: Pair,
    phase: Phase,
    what: What,
    *evidence: Evidence,
    verdict: Verdict = Verdict.DIFFERS,
    **rest: Any,
) -> Finding:
    """Return a finding whose place is that of two matched calls."""
    ours, theirs = (place_of(call) for call in (pair.reference, pair.candidate))
    return Finding(verdict, phase, ours, theirs, what, evidence=evidence, **rest)


def size_in(finding: Finding) -> float:
    """Return the relative L2 that a finding tells; 0 where it tells none."""
    return 0.0 if finding.figures is None else finding.figures.rel_l2


def pair_of(finding: Finding, alignment: Alignment) -> Pair | None:
    """Return the matched calls that a finding is placed at, if it is."""
    path = finding.candidate.path
    return None if path is None else alignment.of_key((path, finding.candidate.call))


def finding_of(suspicion: Suspicion, *, source: bool, step: int, verdict: Verdict | None = None) -> Finding:
    """Return one settled suspect as a finding."""
    pair, spot, held = suspicion.pair, suspicion.spot, suspicion.held
    marks: tuple[Call | None, Call | None] = (None, None)
    if spot is not None and suspicion.between is not None:
        marks = (spot.pair.reference, spot.pair.candidate)
        if spot.pair is pair:
            marks = _last_children(pair)
    owner = None if held is None else parent(held.parameter.path)
    cause, evidence = _why(suspicion)
    figures = suspicion.ruling.figures
    return Finding(
        verdict=verdict or suspicion.verdict,
        phase=suspicion.phase,
        reference=place_of(pair.reference, at=marks[0]),
        candidate=_candidate_place(suspicion, marks[1], owner),
        what=suspicion.what,
        figures=None if figures is UNMEASURED else attrs.evolve(figures, metrics=suspicion.measured),
        evidence=evidence,
        cause=cause,
        between=_between(suspicion),
        given=given_to(suspicion),
        source=source,
        step=step,
    )


def _why(suspicion: Suspicion) -> tuple[Cause | None, tuple[Evidence, ...]]:
    """Return the cause of a suspicion, and what it rests on; what may be the cause and is not verified, is evidence."""
    ruling, found = suspicion.ruling, cause_between(suspicion.pair, suspicion.phase)
    cause = _dtypes(suspicion) or (found if found is not None and found.verified else None) or ruling.hint
    evidence = (*ruling.evidence, *called_with(suspicion.pair))
    if found is None or cause is not None:
        return cause, evidence
    return None, (*evidence, not_verified(found))


def _dtypes(suspicion: Suspicion) -> Cause | None:
    """Return, of a value in another precision, the types that the two sides have it in."""
    spot = suspicion.spot
    if suspicion.verdict is not Verdict.PRECISION or spot is None:
        return None
    types = {"reference": spot.reference.dtype, "candidate": spot.candidate.dtype}
    return Cause("dtypes", types, verified=True) if len(set(types.values())) > 1 else None


def _candidate_place(suspicion: Suspicion, mark: Call | None, owner: str | None) -> Place:
    call, spot = suspicion.pair.candidate, suspicion.spot
    mapped = suspicion.pair.why == MAPPED
    maker = None if spot is None or mapped or suspicion.phase is not Phase.FORWARD else spot.maker
    if maker is not None and call.key in {above.key for above in maker.ancestors()}:
        return place_of(maker)
    if owner is not None and not suspicion.vague:
        # What a module holds its own code uses, be it called where the other side calls none like it.
        holding = (inner for inner in call.subtree() if is_at(owner, inner.path))
        call = max(holding, key=lambda inner: len(inner.path), default=call)
    return place_of(call, at=mark, path=owner if owner and call.leaf else None)


def _between(suspicion: Suspicion) -> tuple[str, str] | None:
    """Return the children between which the code lies, as the call that holds it names them."""
    spot, between = suspicion.spot, suspicion.between
    if between is not None and not any(between):
        return None  # a gradient that a call gives comes of all of its code
    if between is None or spot is None or spot.maker is None:
        return between
    inside = f"{suspicion.pair.name_of(spot.maker)}."
    start, end = (name.removeprefix(inside) for name in between)
    return (start, end)


def given_to(suspicion: Suspicion, side: str = "candidate") -> tuple[str, ...]:
    """Return what goes into the code between a call's children: what they and its inputs give, and no child takes."""
    spot, owner = suspicion.spot, getattr(suspicion.pair, side)
    if spot is None or suspicion.between is None or suspicion.phase is not Phase.FORWARD or owner.module.operation:
        return ()
    taker: Call | None = getattr(spot.pair, side) if spot.what == "input" else None
    others = [one for one in owner.children if taker is None or (one is not taker and one not in taker.ancestors())]
    taken = {leaf.token for one in others for leaf in one.inputs}
    before = [one for one in others if taker is None or one.index < taker.index]
    found = [leaf.path for leaf in owner.inputs if leaf.token not in taken]
    handing = (one for one in before if any(leaf.token not in taken for leaf in one.outputs))
    found += (below(one.path, owner.path) for one in handing)
    return tuple(dict.fromkeys(found))


def _last_children(pair: Pair) -> tuple[Call | None, Call | None]:
    """Return the last child of each side: an output is made after it."""
    ours, theirs = pair.reference.children, pair.candidate.children
    return (ours[-1] if ours else None, theirs[-1] if theirs else None)


def merged(findings: Sequence[Finding], operations: Collection[str | None] = ()) -> list[Finding]:
    """Return findings with repeats of one place made one: a shared module's calls, a value seen at two children.

    The calls of ``operations``, by path, are no one thing: each line of code that calls one is a place of its own.
    """
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        key: tuple[object, ...] = (
            finding.verdict,
            finding.phase,
            finding.candidate.path,
            finding.between,
            finding.step,
        )
        if finding.verdict is Verdict.UNMATCHED:
            key = (*key, finding.evidence)
        if finding.phase is Phase.BUFFER:
            key = (*key, finding.cause)  # one update leaves all buffers of a module
        elif finding.between is None:
            key = (*key, finding.what if finding.phase is not Phase.FORWARD else "")
        if finding.candidate.path in operations:
            key = (*key, finding.cause, finding.reference.location, finding.candidate.location)
        kept.setdefault(key, finding)
    return list(kept.values())


def at_home(finding: Finding, alignment: Alignment) -> Finding:
    """Return a finding whose side without counterpart is placed at the nearest module that has one."""
    for near, far in (SIDES, SIDES[::-1]):
        if getattr(finding, far).path is not None:
            continue
        home = getattr(finding, near).path or ""
        pairs = [(getattr(p, near).path, getattr(p, far)) for p in alignment.pairs]
        above = [(len(path), call) for path, call in pairs if is_at(home, path)]
        call = max(above, key=lambda found: found[0], default=pairs[0])[1]
        home_place: dict[str, Any] = {far: place_of(call)}
        return attrs.evolve(finding, **home_place)
    return finding


def with_location(place: Place, calls: Sequence[Call], model: Description) -> Place:
    if place.path is None or place.location is not None:
        return place
    call = next((call for call in calls if call.path == place.path), None)
    if call is not None:
        return attrs.evolve(place_of(call), class_name=place.class_name)
    about = model.modules.get(place.path)
    definition = None if about is None else about.module.definition
    return attrs.evolve(place, location=f"{definition[0]}:{definition[1]}" if definition else None)


def with_hooks(
    findings: Iterable[Finding], models: tuple[Description, Description], mapping: Matching | None
) -> Iterator[Finding]:
    """Yield findings; sources tell what hooks each side has at the module, or the child that is given the value."""
    ours = {} if mapping is None else {one.candidate: one.reference for one in mapping.modules}
    for one in findings:
        inner = joined(one.candidate.path or "", one.what.taker) if one.what.taker else None
        told = []
        for path in (one.candidate.path, inner) if one.source else ():
            mine = () if path is None else models[0].hooks.get(ours.get(path, path), ())
            yours = () if path is None else models[1].hooks.get(path, ())
            if len(mine) != len(yours):
                told.append(Evidence.of("hooks", module=path, reference=mine, candidate=yours))
        yield attrs.evolve(one, evidence=(*one.evidence, *told)) if told else one
