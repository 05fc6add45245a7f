"""Match buffers by what they hold, by dataflow where it is known, and by name."""

from __future__ import annotations

from padiff.parameters import Correspondence, Held, is_alike, matcher, values_of, with_buffers
from padiff.refinement._evidence import Evidence


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
    found = with_buffers(correspondence, models, read, is_state, match)
    links = [link for match in found.matches[len(correspondence.matches) :] for link in match.links]
    evidence.state |= {(link.reference.parameter.path, link.candidate.parameter.path) for link in links}
    return found
