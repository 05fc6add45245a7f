"""Compare what sketches and values of the same recorded runs show of planted bugs."""

from __future__ import annotations

from pathlib import Path

import pytest

import padiff
from padiff.engine import record_once

from .cases import Case, drawn, named


def places(report: padiff.Report) -> list[tuple[str | None, str]]:
    return [(one.candidate.path, one.phase.value) for one in report.sources]


@pytest.mark.parametrize("seed", [0, 3, 4, 5, 6, 8, 9, 10])
def test_planted_bugs_are_found_in_sketches_where_values_show_them(tmp_path: Path, seed: int) -> None:
    reports = []
    for kept in ("tensors", "sketch"):
        made = drawn(Case("bug", ("rows", "rows"), seed, architecture="random"))
        assert made is not None
        padiff.diff(made.reference, made.candidate, made.arrays)  # copies the weights
        folders = tmp_path / f"{kept}-a", tmp_path / f"{kept}-b"
        for folder, model in zip(folders, (made.reference, made.candidate), strict=True):
            record_once(model, made.arrays, folder, values=kept)
        reports.append(padiff.compare(*folders))
    full, mine = reports
    assert mine.aligned is full.aligned, f"{full}\n{mine}"
    assert places(mine) == places(full), f"{full}\n{mine}"


@pytest.mark.parametrize("seed", [900069, 900077, 900122])
def test_bugs_of_the_backward_pass_are_placed_by_force(tmp_path: Path, seed: int) -> None:
    """Where of the reference only a recorded run is left, no replay tells whose code sent a gradient."""
    made = drawn(named(f"bug/any/rows-columns/float32/{seed}"))
    assert made is not None
    record_once(made.reference, made.arrays, tmp_path / "a")
    report = padiff.compare(tmp_path / "a", force=made.candidate)
    assert {one.candidate.path for one in report.sources} == {path for bug in made.bugs for path in bug.paths}
