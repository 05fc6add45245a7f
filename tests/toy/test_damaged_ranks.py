"""Compare jobs of which some ranks died, were damaged, or are no ranks of this job: each is told, the rest compared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import padiff
from padiff.cli import main
from padiff.distributed._grid import Grid
from padiff.distributed._losses import Losses
from padiff.trace import open_run

from .ranks import record


def missing(report: Any) -> dict[int, str]:
    found = [note for note in report.notes if note.kind == "ranks_missing"]
    return {} if not found else dict(found[0].data["missing"])


def cut_off(folder: Path, pattern: str) -> None:
    (path,) = folder.glob(pattern)
    path.write_bytes(path.read_bytes()[:-40])


def other_model(folder: Path) -> None:
    replace(folder, record(folder.parents[1] / "elsewhere", tp=2, names={"up": "upper"}) / "rank-00001")


def other_world(folder: Path) -> None:
    replace(folder, record(folder.parents[1] / "elsewhere", tp=4) / "rank-00001")


def alone(folder: Path) -> None:
    replace(folder, record(folder.parents[1] / "elsewhere"))


def twice(folder: Path) -> None:
    replace(folder, folder.parent / "rank-00000")


def other_job(folder: Path) -> None:
    """Let a rank be that of an earlier job of the same layout, which was recorded into the same folder."""
    ranks = open_run(folder).about.ranks
    assert ranks is not None
    sizes: dict[str, Any] = {name: len(group) for name, group in ranks.groups.items()}
    for number, path in enumerate(sorted(folder.parent.iterdir())):
        job = f"SLURM_JOB_ID={7 if path == folder else 8}"
        replace(path, record(folder.parents[1] / f"job-{number}", **sizes, job=job) / path.name)


def replace(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "dead": (shutil.rmtree, "it recorded nothing"),
    "without a manifest": (lambda folder: (folder / "manifest.json").unlink(), "no manifest.json"),
    "a manifest cut off": (lambda folder: cut_off(folder, "manifest.json"), "cannot be read"),
    "a step cut off": (lambda folder: cut_off(folder, "step-*.json"), "step 0: "),
    "values cut off": (lambda folder: cut_off(folder, "shard-*"), "was cut off"),
    "without values": (lambda folder: next(folder.glob("shard-*")).unlink(), "cannot be read"),
    "another model": (other_model, "it ran another model than others"),
    "another job": (other_world, "recorded by a job of 4 ranks, and others by one of 2"),
    "no rank": (alone, "not one of several ranks"),
    "an earlier job": (other_job, "recorded by another job (SLURM_JOB_ID=7) than others (SLURM_JOB_ID=8)"),
    "recorded twice": (twice, "that of rank 0"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_rank_that_is_damaged_is_told_and_the_rest_is_compared(damage: str, tmp_path: Path) -> None:
    spoil, why = DAMAGES[damage]
    one, two, whole = record(tmp_path / "one"), record(tmp_path / "two", tp=2), record(tmp_path / "whole", tp=2)
    spoil(two / "rank-00001")
    for pair in ((one, two), (two, one), (whole, two)):
        report = padiff.compare(*pair)
        assert why in missing(report)[1], report
        assert not report.sources, report
        assert report.coverage.missing, report
        assert [call for call in report.calls if call.verdict in ("equal", "rounding")], report


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_replica_that_is_damaged_leaves_what_the_others_hold(damage: str, tmp_path: Path) -> None:
    """Of three ranks with data of their own one is lost: the weights are there still."""
    spoil, why = DAMAGES[damage]
    one, two = record(tmp_path / "one"), record(tmp_path / "two", dp=3)
    if damage in ("another job", "another model"):
        why = "and others by one of 3"
    spoil(two / "rank-00001")
    report = padiff.compare(one, two)
    assert why in missing(report)[1], report
    assert not [source for source in report.sources if source.phase == "parameter"], report


@pytest.mark.parametrize(
    ("ours", "theirs"), [({"tp": 2}, {"tp": 4}), ({"tp": 4}, {"dp": 2, "tp": 2}), ({"dp": 2}, {"dp": 3, "tp": 2})]
)
def test_jobs_of_other_world_sizes_are_compared_as_one_model(ours: Any, theirs: Any, tmp_path: Path) -> None:
    report = padiff.compare(record(tmp_path / "a", **ours), record(tmp_path / "b", **theirs))
    assert report.aligned, report
    assert not report.coverage.missing, report


def test_a_rank_with_fewer_steps_is_told_and_common_steps_are_compared(tmp_path: Path) -> None:
    one, two = record(tmp_path / "one"), record(tmp_path / "two", tp=2)
    for folder, count in ((one, 3), (two / "rank-00000", 3), (two / "rank-00001", 2)):
        for step in range(1, count):
            shutil.copy(folder / "step-00000000.json", folder / f"step-{step:08d}.json")
    report = padiff.compare(one, two)
    assert report.recorded.steps == (0, 1)
    assert report.aligned, report
    note = next(note for note in report.notes if note.kind == "ranks_steps")
    assert "rank 0 steps 0 to 2" in note.text


def test_show_tells_why_ranks_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = record(tmp_path / "two", tp=2)
    twice(two / "rank-00001")
    assert main(["show", str(two)]) == 0
    assert "rank 1 is missing: the run there is that of rank 0" in capsys.readouterr().out


def test_a_missing_part_of_a_batch_is_no_difference_and_no_pass(tmp_path: Path) -> None:
    """What the model returns was told to have no counterpart, and the loss of one rank was taken for all's."""
    one, two = record(tmp_path / "one"), record(tmp_path / "two", dp=2, left_out=(1,))
    report = padiff.compare(one, two)
    assert not report.aligned
    assert not report.sources, report
    grid = Grid(("dp",), {0: {"dp": (0, 1)}})
    assert Losses({0: 1.0}, grid).whole is None
    assert Losses({0: 1.0}, Grid(("tp",), {0: {"tp": (0, 1)}})).whole == 1.0
