"""Read a recorded step otherwise where both scripts make it in two ways: in slices, of passes that lead to a step."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from padiff.engine._recorded_rows import Sides, evidence_of
from padiff.judging import Measuring, Meter
from padiff.parameters import Correspondence
from padiff.refinement import Traces, aligned, in_slices, is_told_more, of_stepped_passes, without_last_functions
from padiff.report import Note

Otherwise = Callable[..., tuple[Traces, list[Note]] | None]


@attrs.frozen
class Reading:
    """How a step is read: what both sides did, what belongs to what, and what is to be said of it."""

    sides: Sides
    meter: Meter
    known: Correspondence
    notes: tuple[Note, ...] = ()

    @property
    def traces(self) -> Traces:
        """Return what both sides did."""
        return self.sides[0].trace, self.sides[1].trace

    def read(self, otherwise: Otherwise, by: Measuring) -> Reading | None:
        """Return it as it is read in another way; None where nothing tells of one."""
        found = otherwise(self.known.alignment, self.traces)
        if found is None:
            return None
        (ours, theirs), notes = found
        sides = attrs.evolve(self.sides[0], trace=ours), attrs.evolve(self.sides[1], trace=theirs)
        meter = Meter(sides, by)
        known = aligned(attrs.evolve(self.known, calls=None), evidence_of(sides, meter))
        return Reading(sides, meter, known, (*self.notes, *notes))


def read_otherwise(sides: Sides, meter: Meter, known: Correspondence, by: Measuring) -> Reading:
    """Return how a step is read: as it is, where both scripts make it alike."""
    first = Reading(sides, meter, known)
    cut = first.read(in_slices, by) or first
    stepped = cut.read(of_stepped_passes, by)
    if stepped is not None and is_told_more(*((one.known.alignment, one.traces) for one in (cut, stepped))):
        cut = (stepped.read(in_slices, by) if cut is first else None) or stepped
    return cut.read(without_last_functions, by) or cut
