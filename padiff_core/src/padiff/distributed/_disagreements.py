"""Find where ranks begin to hold other values than ranks that should hold the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.distributed._job import Job
from padiff.distributed._merged_step import Parts
from padiff.numerics import difference
from padiff.paths import below
from padiff.report import Evidence, Figures, Finding, Phase, Place, What
from padiff.trace import Call, Key


def disagreements(job: Job, known: set[str], *, differs: bool) -> Iterator[Finding]:
    """Yield where ranks begin to disagree in a step: in weights, in what they are given, or in what a call gives.

    ``known`` are the parameters of which it was said before, and grows. Inputs that no framework spreads may be each
    rank's own: they are told where something ``differs`` from the other side.
    """
    step = job.step
    held = step.trace.parameters  # a buffer may follow each rank's own data
    weights = [
        path
        for (name, path), parts in step.parameters.items()
        if name == "weights" and parts.spreading.unlike and not held[path].buffer
    ]
    fresh = [path for path in weights if path not in known]
    known.update(weights)
    for path in fresh:
        yield _of_weight(step.parameters["weights", path], path, job)
    unlike = {place for place, parts in step.values.items() if parts.spreading.unlike}
    sums = {place for place, parts in step.values.items() if partial_axes(parts)}
    root = step.trace.root
    given = sorted(place for place in unlike if place[:2] == (root.key, "input"))
    if given and differs and not weights:
        for place in given:
            yield _of_value(step.values[place], root, "input", place[2], job)
        return
    for call in step.trace.calls:
        which = next((i for key, at, i in sorted(unlike) if key == call.key and at == "output"), None)
        if which is not None and _begins(call, unlike | sums, weights):
            yield _of_value(step.values[call.key, "output", which], call, "output", which, job)


def partial_axes(parts: Parts) -> list[str]:
    """Return the axes along which a value was found to be a sum, and nobody says so."""
    if not parts.spreading.inferred:
        return []
    spread = parts.spreading
    return [axis for axis, how in spread.placements.items() if how.kind == "partial" and axis not in spread.shards]


def _begins(call: Call, unlike: set[tuple[Key, str, int]], weights: Sequence[str]) -> bool:
    """Return whether ranks begin to disagree in a call: in what it gives, not in what it takes or calls, or holds."""
    places = {(key, side) for key, side, _ in unlike}
    if (call.key, "output") not in places or (call.key, "input") in places:
        return False
    inside = {child.key for child in call.subtree() if child is not call}
    if any(key in inside for key, _ in places):
        return False
    return not any(below(path, call.path) for path in weights)


def _of_weight(parts: Parts, path: str, job: Job) -> Finding:
    home, _, name = path.rpartition(".")
    about = job.run.about.modules.get(home)
    mine = Place(home, "" if about is None else about.module.class_name)
    return _finding(parts, job, Phase.PARAMETER, What("parameter", name), (mine, job.others.reported(home, None)))


def _of_value(parts: Parts, call: Call, kind: str, which: int, job: Job) -> Finding:
    mine = Place(call.path, call.module.class_name, call=call.ordinal)
    what = What(kind, call.leaves(kind)[which].path if kind == "input" else "", which)
    return _finding(parts, job, Phase.FORWARD, what, (mine, job.others.reported(call.path, call.ordinal)))


def _finding(parts: Parts, job: Job, phase: Phase, what: What, at: tuple[Place, Place | None]) -> Finding:
    cause, arrays = parts.out_of_step, parts.read()
    assert cause is not None
    first = arrays[cause.parameters["first"]]
    apart = max((difference(first, arrays[rank]) for rank in parts.spreading.unlike), key=lambda one: one.rel_l2)
    evidence = (Evidence("ranks_disagree", {"side": job.side, **cause.parameters}),)
    return job.finding(phase, what, at, figures=Figures.of(apart), evidence=evidence, cause=cause)
