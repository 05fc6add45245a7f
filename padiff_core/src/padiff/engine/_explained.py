"""Look once more where a source lies in the user's own code without a cause: what is called otherwise there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import attrs

from padiff.errors import PadiffError
from padiff.options import DiffOptions
from padiff.parameters import Correspondence
from padiff.refinement import aligned, with_operations_matched
from padiff.report import Finding, Phase
from padiff.trace import Call

if TYPE_CHECKING:
    from padiff.engine._adapt import Prepared
    from padiff.engine._diff import Run
    from padiff.judging import Gathered

_MOST = 1000
"""How many operations of one module's code are looked into: some five seconds where each is wrong."""
Prepare = Callable[[DiffOptions, tuple[Collection[str], Collection[str]]], "Prepared"]


def explain_code(run: Run, prepare: Prepare, stack: ExitStack) -> None:
    """Name the operation that differs in a module's own code, and its line, where the source there has no cause.

    The forward pass runs once more on what is known, with the operations of that code compared. Where all that
    shows there has one cause, that is the source's.
    """
    options, found, known = run.options, run.outcome.findings, run.correspondence
    wanted = [one for one in found if _is_unexplained(one)]
    sides = run.reference, run.candidate
    offered = all("operations" in side.about.capabilities for side in sides)
    if known is None or not (wanted and offered) or options.operations or run.rule is not None:
        return
    paths = {one.reference.path or "" for one in wanted}, {one.candidate.path or "" for one in wanted}
    asked = attrs.evolve(options, operations=True, phase="forward", steps=1, optimizers=False)
    try:
        other = _looked_into(type(run)(prepare(asked, paths), run.progress, stack, run.store), known, paths[1])
    except PadiffError:
        return
    run.outcome.findings = [
        _explained(one, _shown(one, found, other)) if _is_unexplained(one) else one for one in found
    ]


def _looked_into(run: Run, known: Correspondence, paths: Collection[str]) -> Gathered:
    """Return what the operations in the candidate's modules of some paths show, on what is known.

    A long loop shows nothing: each of its operations would be judged by itself.
    """
    with closing(run.store()) as store:
        trace = run.recorded(store, followed=False)
        counts = Counter(call.path.rpartition(".")[0] for call in trace.calls if call.module.operation)
        if max(counts.values(), default=0) > _MOST:
            return run.outcome
        evidence = run.evidence(trace, store, followed=False)
        known = aligned(known, evidence)
        outside = [pair for pair in known.alignment.pairs[1:] if not _is_within(pair.candidate, paths)]
        known = attrs.evolve(known, calls=known.alignment.without(outside))
        known = with_operations_matched(known, evidence)
        run.outcome.gather(0, known, trace, evidence.free(known.axes), evidence.judged(known))
    return run.outcome


def _is_within(call: Call, paths: Collection[str]) -> bool:
    return any(one.path in paths for one in (call, *call.ancestors()))


def _is_unexplained(one: Finding) -> bool:
    return _is_forward(one) and one.cause is None and one.between is not None


def _explained(one: Finding, shown: Sequence[Finding]) -> Finding:
    """Return a source with the cause and the lines of what differs in its code; as it is where that has not one."""
    if len({source.cause for source in shown}) != 1 or shown[0].cause is None:
        return one
    reference, candidate = (
        attrs.evolve(place, location=line.location, stack=line.stack)
        for place, line in ((one.reference, shown[0].reference), (one.candidate, shown[0].candidate))
    )
    return attrs.evolve(one, cause=shown[0].cause, reference=reference, candidate=candidate)


def _shown(one: Finding, found: Sequence[Finding], other: Gathered) -> list[Finding]:
    """Return the sources, among operations and the code between these, that make what a source in their code shows.

    Those are what lies before it in its call, but for what other sources of this code are there for; where that leaves
    nothing, what it takes from there is wrong.
    """
    owner, number = one.candidate.path, one.candidate.call
    at: dict[str | None, dict[int, int]] = {}
    within = True
    for place, call in enumerate(other.calls):
        if call.candidate is not None:
            within = call.candidate.call == number if call.candidate.path == owner else within
            if within:
                at.setdefault(call.candidate.path, {})[call.candidate.call] = place
    spans = [_span(source, at) for source in found if source.step == one.step and _is_own(source, one)]
    own = _span(one, at)

    def is_in(source: Finding, first: float, last: float) -> bool:
        if _is_own(source, one):
            start, end = _span(source, at)
            return start < last and first < end
        path = source.candidate.path or ""
        place = at.get(path, {}).get(source.candidate.call)
        return path.rpartition(".")[0] == owner and place is not None and first < place < last

    before = [source for source in other.findings if _is_forward(source) and is_in(source, -1, own[1])]
    others = [span for span in spans if span != own]
    return [source for source in before if not any(is_in(source, *span) for span in others)] or before


def _is_forward(one: Finding) -> bool:
    return one.source and one.phase is Phase.FORWARD


def _is_own(source: Finding, one: Finding) -> bool:
    """Return whether two sources lie in one call's own code."""
    calls = ((side.path, side.call) for side in (source.candidate, one.candidate))
    return _is_forward(source) and source.between is not None and len({*calls}) == 1


def _span(one: Finding, at: Mapping[str | None, Mapping[int, int]]) -> tuple[float, float]:
    """Return between which places code lies; all around, where it lies between calls that come again and again."""
    owner = one.candidate.path
    before, behind = (at.get(f"{owner}.{name}" if owner else name, {}).values() for name in one.between or ("", ""))
    first, last = max(before, default=-1), min(behind, default=math.inf)
    return (first, last) if first < last else (min(before), max(behind))
