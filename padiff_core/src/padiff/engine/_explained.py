"""Look once more where a source lies in the user's own code without a cause: what is called otherwise there."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from padiff.errors import PadiffError
from padiff.options import DiffOptions
from padiff.report import Finding, Phase

if TYPE_CHECKING:
    from padiff.engine._adapt import Prepared
    from padiff.engine._diff import Run
    from padiff.judging import Gathered

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
        other = type(run)(prepare(asked, paths), run.progress, stack, run.store).look_into(known, paths[1])
    except PadiffError:
        return
    run.outcome.findings = [
        _explained(one, _shown(one, found, other)) if _is_unexplained(one) else one for one in found
    ]


def _is_unexplained(one: Finding) -> bool:
    return one.source and one.cause is None and one.between is not None and one.phase is Phase.FORWARD


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
    """Return the sources, among operations and the code between these, in the code that a source lies in.

    Where it is the only one in its call, it may have begun before the call behind which it shows: a mask is made first.
    """
    owner, number = one.candidate.path, one.candidate.call
    at: dict[str | None, list[int]] = {}
    within = True
    for place, call in enumerate(other.calls):
        if call.candidate is not None:
            within = call.candidate.call == number if call.candidate.path == owner else within
            at.setdefault(call.candidate.path, []).extend([place] * within)
    first, last = _span(one, at)
    if sum(source.source and source.step == one.step and _is_own(source, one) for source in found) == 1:
        first = -1

    def is_in(source: Finding) -> bool:
        if _is_own(source, one):
            start, end = _span(source, at)
            return start < last and first < end
        path = source.candidate.path or ""
        return path.rpartition(".")[0] == owner and any(first < place < last for place in at.get(path, ()))

    return [source for source in other.findings if source.source and source.phase is Phase.FORWARD and is_in(source)]


def _is_own(source: Finding, one: Finding) -> bool:
    """Return whether two sources lie in one call's own code."""
    calls = ((side.path, side.call) for side in (source.candidate, one.candidate))
    return source.phase is Phase.FORWARD and source.between is not None and len({*calls}) == 1


def _span(one: Finding, at: Mapping[str | None, Sequence[int]]) -> tuple[float, float]:
    """Return between which places code lies; all around, where it lies between calls that come again and again."""
    owner = one.candidate.path
    before, behind = (at.get(f"{owner}.{name}" if owner else name, ()) for name in one.between or ("", ""))
    first, last = max(before, default=-1), min(behind, default=math.inf)
    return (first, last) if first < last else (min(before), max(behind))
