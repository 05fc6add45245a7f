"""Know what optimizers of a job's ranks were given as gradients, as one optimizer would have been given them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from padiff.distributed._grid import Grid
from padiff.distributed._infer import Spreading
from padiff.distributed._merged_step import MergedStep
from padiff.distributed._placements import REPLICATE
from padiff.distributed._sketches import together
from padiff.trace import Summary, Trace


def keep_optimizer_gradient(step: MergedStep, traces: Mapping[int, Trace], path: str) -> None:
    """Keep what is known of the gradient of a parameter that the optimizers of ranks were given, where they tell it."""
    held = step.weights(path)
    found = None if held is None else _merged_gradient(traces, step.grid, path, held.spreading)
    if found is not None:
        step.trace.handed[path] = step.trace.summarized(found)


def _merged_gradient(traces: Mapping[int, Trace], grid: Grid, path: str, how: Spreading) -> Summary | None:
    """Return what is known of the gradient of a parameter; None where a rank does not tell, or replicas part.

    ``how`` says how the parameter is spread.
    """
    held = {rank: trace for rank, trace in traces.items() if path in trace.parameters}
    if any(path in trace.arrived for trace in held.values()):
        return None  # what arrived in all is no measure of it
    known = {rank: trace.summaries.get(trace.handed.get(path, 0)) for rank, trace in held.items()}
    parts: dict[int, Summary | None] = dict(known)
    # A table that is sharded by its rows may be given its whole gradient on each rank: the optimizer takes its part.
    sizes = {rank: math.prod(trace.parameters[path].shape) for rank, trace in held.items()}
    parts |= {rank: Summary("", (0,)) for rank, size in sizes.items() if not size}  # whose range ends before it
    whole = any(one is not None and math.prod(one.shape) > sizes[rank] for rank, one in known.items())

    def kind(axis: str) -> str:
        return REPLICATE.kind if whole else how.kind(axis)

    if any(kind(axis) != "replicate" and grid.lacks(list(parts), axis) for axis in grid.axes):
        return None
    return grid.folded(parts, lambda axis, group: together(group, kind(axis)))
