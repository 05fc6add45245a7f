"""Leave out gradients that a script asks for beside those that it steps with: of each task, to weigh their losses."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from padiff.alignment import Alignment
from padiff.judging import held, of_last_pass, size_of
from padiff.numerics import SAME
from padiff.refinement._cut_calls import Traces
from padiff.report import SIDES, Note
from padiff.trace import Trace


def of_last_passes(alignment: Alignment, traces: Traces) -> tuple[Traces, list[Note]] | None:
    """Return a step with the gradients of the last of several passes, and notes; None where all of them count.

    They do where a parameter is stepped by more than those, or more comes behind its step. Where a script forgets some,
    what all passes send is what agrees with the other side's.
    """
    read = [_of_last(trace) for trace in traces]
    several = [trace.sent_last if own is not trace else {} for own, trace in zip(read, traces, strict=True)]
    given = {(a.token, b.token) for pair in alignment.pairs for a, b in pair.made}
    given = {both for both in given if both[0] in several[0] or both[1] in several[1]}
    if _alike(given, (read[0], read[1])) <= _alike(given, traces):
        return None
    sides = [side for side, own in zip(SIDES, several, strict=True) if own]
    return (read[0], read[1]), [Note("unused_passes", {"sides": sides})]


def _of_last(trace: Trace) -> Trace:
    """Return a trace with what the last of several backward passes sent, where optimizers stepped by that alone."""
    several = trace.latest.keys() - set().union(*of_last_pass(trace))
    if not trace.sent_last or not trace.handed or several or trace.arrived:
        return trace
    gradients, parameters = {**trace.gradients, **trace.sent_last}, {**trace.parameter_gradients, **trace.latest}
    return attrs.evolve(trace, gradients=gradients, parameter_gradients=parameters, sent_last={}, latest={})


def _alike(given: Iterable[tuple[int, int]], traces: Traces) -> int:
    """Return to how many values, by their tokens, both sides send the same."""
    ours, theirs = traces
    sizes = [size_of(held(ours, ours.gradients.get(a)), held(theirs, theirs.gradients.get(b))) for a, b in given]
    return sum(size is not None and size.error <= SAME(size.eps) for size in sizes)
