"""Say what the optimizers of all ranks step a model's parameters with: what is not the same on all, rank by rank."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from padiff.trace import SteppedRecord, Trace


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
