"""Merge two runs as they are compared with each other, of which either may be that of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from padiff.alignment import Resolved
from padiff.distributed._others import RunMatch, match_runs
from padiff.distributed._run import Counterpart, RankedRun
from padiff.parameters import PaddedRows
from padiff.report import SIDES, Note
from padiff.trace import Description, Run, Trace, spanned

Padding = tuple[PaddedRows | None, PaddedRows | None]


def merged_runs(runs: Sequence[Run], mapped: Callable[[Any, Any], Resolved], padding: Padding) -> list[Run]:
    """Return two runs, one of several ranks as it is merged where it is compared with the other.

    ``mapped`` returns what the user says of two models, ``padding`` is what either of these pads. Of two jobs each is
    put together by itself first, as far as its framework says how its values lie; by that the other is, and by what
    this gives the first.
    """
    ours, theirs = runs
    ranked = [run for run in runs if isinstance(run, RankedRun)]
    if not ranked:
        return list(runs)
    step = next((one for one in ours.steps if one in set(theirs.steps)), None)
    if step is None:
        return list(runs)
    abouts = [run.about if rows is None else rows.about(run.about) for rows, run in zip(padding, runs, strict=True)]
    resolved = mapped(*map(_About, abouts))
    traces = _traces(runs, step, padding)
    match = match_runs(((abouts[0], traces[0]), (abouts[1], traces[1])), resolved)
    # Each rank of two jobs may hold a value of the same shape at the same place.
    alike = len(ranked) == 2 and match is None and ranked[0].grid == ranked[1].grid
    if alike and ranked[0].shapes(step) == ranked[1].shapes(step):
        stacked = ranked[0].compared_with(Counterpart(theirs, stacked=True))
        return [stacked, ranked[1].compared_with(Counterpart(stacked, None, 1))]
    found = _as_compared(ours, theirs, match, padding)
    further = None if match is None else match.further(*_traces(found, step, padding), resolved)
    return found if further is None else _as_compared(ours, theirs, further, padding)


def _traces(runs: Sequence[Run], step: int, padding: Padding) -> tuple[Trace, Trace]:
    ours, theirs = (
        run.trace(step) if rows is None else rows.of(run.trace(step)) for rows, run in zip(padding, runs, strict=True)
    )
    return ours, theirs


def _as_compared(ours: Run, theirs: Run, match: RunMatch | None, padding: Padding) -> list[Run]:
    if isinstance(ours, RankedRun):
        ours = ours.compared_with(Counterpart(theirs, match, 0, padding))
    return [
        ours,
        theirs.compared_with(Counterpart(ours, match, 1, padding)) if isinstance(theirs, RankedRun) else theirs,
    ]


@attrs.frozen
class _About:
    """A model of which only the description is there."""

    about: Description

    def find(self, native: Any) -> None:
        """Return None: there is no live module."""


def rank_notes(runs: Sequence[Run], step: int) -> Iterator[Note]:
    """Yield of how many ranks a side is merged, what of that is inferred, and which ranks are missing."""
    for side, run in zip(SIDES, runs, strict=True):
        if isinstance(run, RankedRun):
            merged = run.merged(step)
            inferred = sum(parts.spreading.inferred for parts in merged.values.values())
            yield Note("ranks", {"side": side, "count": len(run.runs), "inferred": inferred, "left": merged.left})
            shown = [(rank, one.steps) for rank, one in run.runs.items() if list(one.steps) != list(run.steps)]
            if shown:
                names = [(rank, f"step{'s' if len(steps) > 1 else ''} {spanned(steps)}") for rank, steps in shown]
                yield Note("ranks_steps", {"side": side, "ranks": tuple(names)})
            apart = run.of_some_ranks
            if apart:
                yield Note("modules_of_some_ranks", {"side": side, "count": len(apart), "first": apart[0]})
            if run.missing:
                yield Note("ranks_missing", {"side": side, "world": run.world, "missing": tuple(run.missing)})
