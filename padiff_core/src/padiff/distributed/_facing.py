"""Let two runs face each other, of which either may be that of several ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.distributed._run import RankedRun
from padiff.report import Note
from padiff.trace import Run

__all__ = ["facing", "rank_notes"]

_SIDES = ("reference", "candidate")


def facing(runs: Sequence[Run]) -> list[Run]:
    """Return two runs, one of several ranks as it is merged where it is compared with the other."""
    ours, theirs = runs
    if isinstance(theirs, RankedRun):
        if isinstance(ours, RankedRun) and ours.grid == theirs.grid:
            ours = ours.stacked()
        return [ours, theirs.compared_with(ours)]
    return [ours.compared_with(theirs) if isinstance(ours, RankedRun) else ours, theirs]


def rank_notes(runs: Sequence[Run], step: int) -> Iterator[Note]:
    """Yield of how many ranks a side is merged, what of that is inferred, and which ranks are missing."""
    for side, run in zip(_SIDES, runs, strict=True):
        if isinstance(run, RankedRun):
            merged = run.merged(step)
            inferred = sum(parts.spreading.inferred for parts in merged.values.values())
            yield Note("ranks", {"side": side, "count": len(run.runs), "inferred": inferred, "left": merged.left})
            if run.missing:
                yield Note("ranks_missing", {"side": side, "world": run.world, "missing": tuple(run.missing)})
