"""Know what the optimizers of a job's ranks step with, as one would: settings, rank by rank where unlike, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from padiff.distributed._grid import Grid
from padiff.distributed._infer import Spreading
from padiff.distributed._merged_step import MergedStep, Parts
from padiff.distributed._placements import REPLICATE
from padiff.distributed._sketches import together, with_nothing
from padiff.trace import SteppedRecord, Summary, Trace


def stepped_with(traces: Mapping[int, Trace]) -> list[SteppedRecord]:
    """Return what ranks step parameters with: of a setting on which they differ, rank -> value."""
    told = {rank: trace.settings_by_path() for rank, trace in traces.items()}
    settings: dict[str, dict[str, Any]] = {}
    paths: dict[str, list[str]] = {}
    for path in dict.fromkeys(path for one in told.values() for path in one):
        own = _of_ranks({rank: one[path] for rank, one in told.items() if path in one})
        name = repr((path is None, own))
        settings[name] = own
        paths.setdefault(name, []).extend([] if path is None else [path])
    return [SteppedRecord(own, paths[name] or None) for name, own in settings.items()]


def unlike_settings(trace: Trace, paths: Collection[str]) -> dict[str, dict[int, Any]]:
    """Return the settings on which ranks differ, where all of these parameters are stepped with them."""
    told = trace.settings_by_path()
    first, *others = [told.get(path, told.get(None, {})) for path in paths]
    by_rank = {name: value for name, value in first.items() if isinstance(value, dict)}
    return {name: value for name, value in by_rank.items() if all(one.get(name) == value for one in others)}


def _of_ranks(own: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for settings in own.values() for name in settings)
    each = {name: {rank: settings.get(name) for rank, settings in own.items()} for name in names}
    return {
        name: values if len(set(map(repr, values.values()))) > 1 else values[min(values)]
        for name, values in each.items()
    }


def keep_optimizer_gradient(step: MergedStep, traces: Mapping[int, Trace], path: str) -> None:
    """Keep what is known of the gradient of a parameter that the optimizers of ranks were given, where they tell it."""
    held = step.weights(path)
    found = None if held is None else _merged_gradient(traces, step.grid, path, held.spreading)
    if found is not None:
        step.trace.handed[path] = step.trace.summarized(found)


def keep_last_pass(step: MergedStep, traces: Mapping[int, Trace], path: str, promised: Callable[[Parts], int]) -> None:
    """Keep the gradient of the last of several backward passes: it lies on ranks as that of all of them does."""
    whole = step.parameters.get(("parameter_gradients", path))
    held = {rank: trace for rank, trace in traces.items() if path in trace.parameters}
    if whole is None or not any(path in trace.latest for trace in held.values()):
        return
    keys = {rank: trace.latest.get(path, trace.parameter_gradients.get(path)) for rank, trace in held.items()}
    arrays = with_nothing(traces, keys, {rank: trace.parameters[path].shape for rank, trace in held.items()})
    if len(arrays) == len(held):
        step.trace.latest[path] = promised(attrs.evolve(whole, arrays=arrays))


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
