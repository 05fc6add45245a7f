"""Match two recorded runs by their structure: which steps, which parameters, which calls."""

from __future__ import annotations

import attrs

from padiff.alignment import MappingFile, Resolved, align, resolved_file
from padiff.engine._open import finished_steps
from padiff.parameters import (
    Correspondence,
    in_real_numbers,
    named_alike,
    pair_parameters,
    units_of,
    with_copies,
    with_shared,
)
from padiff.trace import Run, Trace, flow_of


def steps_of(reference: Run, candidate: Run, step: int | None) -> list[tuple[int, int]]:
    """Return which steps of both runs belong together."""
    if step is not None:
        return [(step, step)]
    ours, theirs = finished_steps(reference), finished_steps(candidate)
    return [(one, one) for one in ours if one in theirs] or [(ours[0], theirs[0])]


def _noted(run: Run, trace: Trace) -> Trace:
    """Return the step that the dataflow was noted beside: the first one."""
    return trace if trace.flow is not None or len(run.steps) < 2 else run.trace(run.steps[0])


def matched_runs(reference: Run, candidate: Run, traces: tuple[Trace, Trace], file: MappingFile) -> Correspondence:
    """Match the calls of two traces: by parameters and dataflow where both are known, else by names.

    The names are those that a mapping file makes of the reference's.
    """
    ours, theirs = in_real_numbers(units_of(reference.about), units_of(candidate.about))
    told = resolved_file(file, reference.about, candidate.about)
    if ours and theirs:
        flows = flow_of(_noted(reference, traces[0])), flow_of(_noted(candidate, traces[1]))
        known = named_alike(ours, theirs, told) or pair_parameters(ours, theirs, flows, told)
        known = with_copies(with_shared(known, *traces))
        return attrs.evolve(known, calls=align(*traces, [match.modules for match in known.matches], told))
    return Correspondence(ours, theirs, [], calls=align(*traces, [], Resolved(named=told.called)))
