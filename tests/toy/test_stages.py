"""Merge the stages of a pipeline, made up of arrays, and compare them with one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.adapter import Ranks
from padiff.trace import rank_folder

from .archive import write_run
from .ranks import LAST, _about, _trace, record, weights, x

Array = Any
STAGES = (("norm", "up"), ("down", LAST))


def pipeline(
    folder: Path, *, handed: float = 1.0, stale: float = 1.0, left_out: tuple[int, ...] = (), own: bool = False
) -> Path:
    """Run two stages; the second takes ``handed`` times what the first gives, and has ``stale`` times its weight.

    With ``own`` both are one stage, of which each rank has modules of its own.
    """
    held = weights()
    held["down.weight"] = held["down.weight"] * np.float32(stale)
    given = x()
    normed = given * held["norm.weight"]
    made = normed @ held["up.weight"].T
    relu = np.maximum(made, 0)
    taken = relu * np.float32(handed)
    out = taken @ held["down.weight"].T
    end = np.tanh(out)
    steps = [("norm", given, normed), ("up", normed, made)], [("down", taken, out), (LAST, out, end)]
    for rank, (calls, gives) in enumerate(zip(steps, (relu, end), strict=True)):
        mine = {path: value for path, value in held.items() if path.partition(".")[0] in STAGES[rank]}
        groups = {"ep" if own else "pp": (0, 1)}
        about = _about(mine, Ranks(rank, 2, groups))
        modules = {path: one for path, one in about.modules.items() if not path or path in STAGES[rank]}
        trace = _trace(given, calls, gives, mine)
        if rank:
            trace.root.inputs = []
        if rank not in left_out:
            write_run(rank_folder(folder, rank), attrs.evolve(about, modules=modules), [(0, trace)])
    return folder


def test_stages_are_the_model_that_they_make(tmp_path: Path) -> None:
    one, two = record(tmp_path / "one"), pipeline(tmp_path / "two")
    for pair in ((one, two), (two, one), (two, two)):
        report = padiff.compare(*pair)
        assert report.aligned, report
        assert [call.candidate.path for call in report.calls] == ["", "norm", "up", "down", LAST]
        assert not report.coverage.missing, report


@pytest.mark.parametrize(
    ("fault", "path", "what", "between"),
    [({"handed": 1.1}, "", "input", ("up", "down")), ({"stale": 1.1}, "down", "parameter", None)],
)
def test_a_fault_of_a_stage_is_named_with_its_rank(
    fault: dict[str, float], path: str, what: str, between: object, tmp_path: Path
) -> None:
    report = padiff.compare(record(tmp_path / "one"), pipeline(tmp_path / "two", **fault))
    (source,) = report.sources
    assert (source.candidate.path, source.what.kind, source.between) == (path, what, between), report
    assert (source.reference.ranks, source.candidate.ranks) == ((), (1,))


def test_a_stage_that_is_missing_is_no_pass(tmp_path: Path) -> None:
    report = padiff.compare(record(tmp_path / "one"), pipeline(tmp_path / "two", left_out=(1,)))
    assert any(note.kind == "ranks_missing" for note in report.notes)
    assert report.coverage.missing or not report.aligned, report


def test_modules_that_some_ranks_alone_have_are_told_and_no_pass(tmp_path: Path) -> None:
    report = padiff.compare(record(tmp_path / "one"), pipeline(tmp_path / "two", own=True))
    assert not report.aligned, report
    (note,) = (note for note in report.notes if note.kind == "modules_of_some_ranks")
    assert note.data["count"] == 4
