"""Match buffers by what they hold, by dataflow where it is known, and by name."""

from __future__ import annotations

from collections.abc import Callable

from padiff.numerics import Array
from padiff.parameters import (
    Correspondence,
    Held,
    is_alike,
    matcher,
    values_of,
    with_buffers,
)
from padiff.refinement._evidence import Evidence
from padiff.trace import ParameterRecord, Trace

Read = Callable[[ParameterRecord], Array | None]


def with_buffers_matched(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with buffers matched: state, to be copied, and constants, to be compared."""
    sides = reference, candidate = evidence.reference, evidence.candidate
    recorded = evidence.trace.buffers

    def is_state(ours: Held, theirs: Held) -> bool:
        """Return whether the reference's forward wrote it, or it was taken for state before it was copied."""
        path = ours.parameter.path
        written = path in recorded and not is_alike(evidence.trace.array(recorded[path]), reference.value(path))
        return written or (path, theirs.parameter.path) in evidence.state

    match = matcher(evidence.flows(), correspondence.fixed) if evidence.knows_flows else None
    models, read = (reference.about, candidate.about), (values_of(sides[0]), values_of(sides[1]))
    later = None
    if evidence.trace.weights and not evidence.transfer:  # recorded runs: a sum begins as the table that is made of it
        later = _left_by(evidence.trace, read[0]), _left_by(evidence.free(), read[1])
    found = with_buffers(correspondence, models, read, is_state, match, later)
    links = [link for match in found.matches[len(correspondence.matches) :] for link in match.links]
    evidence.state |= {(link.reference.parameter.path, link.candidate.parameter.path) for link in links}
    return found


def _left_by(trace: Trace, read: Read) -> Read:
    """Return what reads what a step left in a buffer; what it held before where that is not known."""

    def left(parameter: ParameterRecord) -> Array | None:
        key = trace.buffers.get(parameter.path, -1)
        return trace.array(key) if key >= 0 else read(parameter)

    return left


def with_buffers_named(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Return the correspondence with buffers matched by name, where of recorded runs no values were kept."""

    def is_state(ours: Held, theirs: Held) -> bool:
        """Return whether either run wrote it."""
        return _is_written(evidence.trace, ours.parameter.path) or _is_written(evidence.free(), theirs.parameter.path)

    models = evidence.reference.about, evidence.candidate.about
    return with_buffers(correspondence, models, None, is_state, None)


def _is_written(trace: Trace, path: str) -> bool:
    """Return whether a step left another value of a buffer, as far as is known."""
    before, after = trace.weights.get(path), trace.buffers.get(path)
    if before is None or after is None:
        return False
    if min(before, after) >= 0:
        return not is_alike(trace.array(before), trace.array(after))
    known = [trace.summaries.get(key) for key in (before, after)]
    both = [one.sample for one in known if one is not None and one.sample is not None]
    return len(both) == 2 and not is_alike(*both)
