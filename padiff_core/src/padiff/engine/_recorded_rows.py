"""Read recorded runs with rows in another order: which parameters hold them so, and which values are read so."""

from __future__ import annotations

from typing import Any

from padiff.alignment import recorded_row_orders
from padiff.forcing import RecordedSide
from padiff.judging import Meter, Recorded, measures_of
from padiff.numerics import Difference
from padiff.parameters import Correspondence, Link, UnitMatch
from padiff.recording import Orders, Task, composed
from padiff.refinement import Evidence, as_read, is_called, is_used, read_in_rows, read_so
from padiff.report import Phase
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

    It does where neither what holds them nor what calls that makes anything wrong when their values are read so.
    """
    if not known.row_orders:
        return known
    evidence = evidence_of(sides, meter)
    read = read_so(known, composed(known.axes, read_in_rows(known)), evidence)
    read = as_read(_with_rows(read, sides, meter) or read, evidence)
    tried = found.forked()
    tried.gather(step, (sides[0], read_in(sides[1], read.axes)), read, meter)
    forward = (one for one in tried.findings if one.source and one.phase is Phase.FORWARD)
    wrong = {one.candidate.path for one in forward}

    def goes(match: UnitMatch, link: Link, axis: int) -> bool:
        pairs = read.alignment.using(match.candidate.module.path)
        calls = (call for pair in pairs for call in (pair.candidate, pair.candidate.parent) if call is not None)
        used = is_called(match, pairs) or is_used(link, axis, evidence.trace)
        return used and wrong.isdisjoint(call.path for call in calls)

    plain = known.in_order(goes)
    return read if plain is known else in_best_order(found, step, plain, sides, meter)


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
        size = meter.before(link)
        return None if size is None else size.difference

    ours, theirs = sides
    task = Task((), {})
    return Evidence(ours, theirs, task, task, ours.trace, run, measures_of(None), transfer=False, measured=measured)
