"""Look once more where a source lies in the user's own code without a cause: what is called otherwise there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from padiff.errors import PadiffError
from padiff.grouping import grouped
from padiff.options import DiffOptions
from padiff.report import Finding, Phase

if TYPE_CHECKING:
    from padiff.engine._adapt import Prepared
    from padiff.engine._diff import Run

_ENOUGH = 2
"""How many places of the same lines of code are looked into."""
Prepare = Callable[[DiffOptions, tuple[Collection[str], Collection[str]]], "Prepared"]


def explain_code(run: Run, prepare: Prepare, stack: ExitStack) -> None:
    """Name the operation that differs in a module's own code, and its line, where the source there has no cause.

    The forward pass runs once more on what is known, with the operations of that code compared. Where all that shows
    there has one cause, that is the source's.
    """
    options, found, known = run.options, run.outcome.findings, run.correspondence
    groups = grouped(filter(_is_unexplained, found), _code)
    sides = run.reference, run.candidate
    offered = all("operations" in side.about.capabilities for side in sides)
    if known is None or not (groups and offered) or options.operations or run.rule is not None:
        return
    looked = [one for group in groups.values() for one in group[:_ENOUGH]]
    paths = {one.reference.path or "" for one in looked}, {one.candidate.path or "" for one in looked}
    asked = attrs.evolve(options, operations=True, phase="forward", steps=1, optimizers=False)
    try:
        other = type(run)(prepare(asked, paths), run.progress, stack, run.store).look_into(known, paths[1])
    except PadiffError:
        return
    sources = [one for one in other.findings if one.source and one.phase is Phase.FORWARD]
    order = {call.candidate.path: place for place, call in enumerate(other.calls) if call.candidate is not None}
    shown = {
        code: [source for one in group[:_ENOUGH] for source in sources if _is_in(source, one, order)]
        for code, group in groups.items()
    }
    run.outcome.findings = [_explained(one, shown[_code(one)]) if _is_unexplained(one) else one for one in found]


def _is_unexplained(one: Finding) -> bool:
    return one.source and one.cause is None and one.between is not None and one.phase is Phase.FORWARD


def _code(one: Finding) -> object:
    """Return what sources in the same lines of code have in common."""
    return one.what, *((side.class_name, side.location) for side in (one.reference, one.candidate))


def _explained(one: Finding, shown: Sequence[Finding]) -> Finding:
    """Return a source with the cause and the lines of what differs in its code; as it is where that has not one."""
    if len({source.cause for source in shown}) != 1 or shown[0].cause is None:
        return one
    reference, candidate = (
        attrs.evolve(place, location=line.location, stack=line.stack)
        for place, line in ((one.reference, shown[0].reference), (one.candidate, shown[0].candidate))
    )
    return attrs.evolve(one, cause=shown[0].cause, reference=reference, candidate=candidate)


def _is_in(source: Finding, one: Finding, order: Mapping[str | None, int]) -> bool:
    """Return whether a source lies in the own code of another's call, between the same calls."""
    path, owner = source.candidate.path or "", one.candidate.path
    first, last = (order.get(f"{owner}.{name}" if owner else name) for name in one.between or ("", ""))
    after = first is None or order.get(path, first) >= first
    return path.rpartition(".")[0] == owner and after and (last is None or order.get(path, last) <= last)
