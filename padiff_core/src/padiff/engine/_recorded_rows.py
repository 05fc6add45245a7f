"""Read recorded runs with rows in another order: which parameters hold them so, and which values are read so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from padiff.alignment import Pair, recorded_row_orders
from padiff.forcing import RecordedSide
from padiff.judging import Meter, Recorded, measures_of
from padiff.numerics import Difference
from padiff.parameters import Correspondence, Link, UnitMatch
from padiff.paths import joined
from padiff.recording import Orders, Task, composed
from padiff.refinement import Evidence, as_read, is_called, is_used, read_in_rows, read_so
from padiff.report import Finding, Phase
from padiff.trace import Trace

Sides = tuple[RecordedSide, RecordedSide]


def read_in(side: RecordedSide, axes: Orders) -> RecordedSide:
    """Return a side with its values read in some orders."""
    return side.permuted(axes) if axes else side


def with_rows(
    before: Recorded, found: Recorded, known: Correspondence, sides: Sides, meter: Meter
) -> Correspondence | None:
    """Return the correspondence of a step with rows read in another order; None where nothing tells of one.

    Which row is which may be another thing in each step: tokens go to other experts.
    """
    if left_to_explain(found) == left_to_explain(before):
        return None
    return _with_rows(known, sides, meter)


def _with_rows(known: Correspondence, sides: Sides, meter: Meter) -> Correspondence | None:
    """Return the correspondence with rows read in another order, None where no value is in one."""
    trace = read_in(sides[1], known.axes).trace
    further = recorded_row_orders(known.alignment, sides[0].trace, trace, known.row_orders)
    return read_so(known, composed(known.axes, further), evidence_of(sides, meter)) if further else None


def in_best_order(found: Recorded, step: int, known: Correspondence, sides: Sides, meter: Meter) -> Correspondence:
    """Return the correspondence with parameters' rows in another order where the code goes with them, else in order.

    It does where neither what holds them, all of it, nor what calls that is wrong when their values are read so, or
    where code of the same class goes with the same before.
    """
    if not known.row_orders:
        return known
    evidence = evidence_of(sides, meter)
    read = read_so(known, composed(known.axes, read_in_rows(known)), evidence)
    read = as_read(_with_rows(read, sides, meter) or read, evidence)
    tried = found.forked()
    tried.gather(step, (sides[0], read_in(sides[1], read.axes)), read, meter)
    wrong = [one for one in tried.findings if one.source and one.phase is Phase.FORWARD]
    unlike = {one.candidate.path for one in tried.findings if one.source and one.phase is Phase.PARAMETER}
    doubted = _doubted(read, wrong)
    refuted = {_place(*one) for one in _reordered(read) if one[0].candidate.path in doubted} - _borne_out(read, wrong)

    def goes(match: UnitMatch, link: Link, axis: int) -> bool:
        pairs = read.alignment.using(match.candidate.module.path)
        used = is_called(match, pairs, evidence.trace) or is_used(link, axis, evidence.trace)
        if not used or match.candidate.module.path in unlike:
            return False
        return refuted.isdisjoint(_place(pair, link, axis) for pair in pairs)

    plain = known.in_order(goes)
    return read if plain is known else in_best_order(found, step, plain, sides, meter)


def _reordered(read: Correspondence) -> Iterator[tuple[Pair, Link, int]]:
    """Yield the calls that use rows in another order, with these."""
    for match, link in read.links:
        for pair in read.alignment.using(match.candidate.module.path) if link.orders else ():
            yield from ((pair, link, axis) for axis, order in enumerate(link.orders) if order)


def _place(pair: Pair, link: Link, axis: int) -> tuple[Any, ...]:
    """Return in which place of code of which class rows are used in which order."""
    owner = pair.candidate.parent or pair.candidate
    name = pair.candidate.path.removeprefix(owner.path)
    return owner.module.class_name, name, link.role, axis, link.orders[axis]


def _borne_out(read: Correspondence, wrong: Sequence[Finding]) -> set[tuple[Any, ...]]:
    """Return the places of code, and orders, of calls that are right and that nothing wrong comes before."""
    paths = {one.candidate.path for one in wrong}
    first = min((pair.candidate.index for pair in read.alignment.pairs if pair.candidate.path in paths), default=0)
    return {_place(*one) for one in _reordered(read) if one[0].candidate.index < first and one[0].candidate.parent}


def _doubted(read: Correspondence, wrong: Sequence[Finding]) -> set[str]:
    """Return the paths of calls whose rows in another order may make code wrong: the nearest that are in one."""
    calls = [pair.candidate for pair, _, _ in _reordered(read)]
    doubted = set()
    for one in wrong:
        owner = one.candidate.path or ""
        inside = {call.path for call in calls if call.parent is not None and call.parent.path == owner}
        beside = {joined(owner, name) for name in one.between or ()}
        doubted |= {owner} | (inside & beside or inside)
    return doubted


def left_to_explain(found: Recorded) -> tuple[int, int, int]:
    """Return how many sources were found, how many matched calls were dropped, and what else differs."""
    findings = found.findings
    return sum(one.source for one in findings), found.dropped, sum(one.counts for one in findings)


def evidence_of(sides: Any, meter: Meter) -> Evidence:
    """Return the evidence of two recorded sides: nothing is run."""

    def run(side: Any, _: Task) -> Trace:
        trace: Trace = side.trace
        return trace

    def measured(link: Link) -> Difference | None:
        size = meter.before(link) or meter.of_link(link, "before")
        return None if size is None else size.difference

    ours, theirs = sides
    task = Task((), {})
    return Evidence(ours, theirs, task, task, ours.trace, run, measures_of(None), transfer=False, measured=measured)
