"""Compare Megatron's GPT as it is trained over several dimensions, with micro-batches, against one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import padiff

JOBS = ["whole", "vpp2", "tp2-pp2", "pp2-stale", "vpp2-epsilon", "tied", "tied-pp2", "tied-apart"]
JOBS += ["joined", "dp2-joined"]


def compared(jobs: Path, one: str, other: str) -> Any:
    return padiff.compare(jobs / one, jobs / other)


@pytest.mark.parametrize(("whole", "job"), [("whole", "vpp2"), ("whole", "tp2-pp2"), ("tied", "tied-pp2")])
def test_a_pipeline_is_the_model_that_its_stages_make(jobs: Path, whole: str, job: str) -> None:
    for pair in ((whole, job), (job, whole)):
        report = compared(jobs, *pair)
        assert report.aligned, report
        assert not report.coverage.missing, report
        models = [call.reference.call for call in report.calls if call.candidate and not call.candidate.path]
        assert models == [0, 1] * 2  # micro-batches and steps


def test_two_pipelines_of_other_schedules_are_compared(jobs: Path) -> None:
    assert compared(jobs, "tp2-pp2", "vpp2").aligned


@pytest.mark.parametrize(
    ("whole", "job"), [("joined", "whole"), ("joined", "vpp2"), ("joined", "tp2-pp2"), ("dp2-joined", "whole")]
)
def test_a_batch_is_read_as_the_micro_batches_that_another_job_makes_of_it(jobs: Path, whole: str, job: str) -> None:
    """A rank's part of the batch was taken for a copy of another micro-batch, of as many rows."""
    for pair in ((whole, job), (job, whole)):
        report = compared(jobs, *pair)
        assert report.aligned, report
        assert [note.data["count"] for note in report.notes if note.kind == "slices"] == [2]


@pytest.mark.parametrize("whole", ["whole", "joined"])
@pytest.mark.parametrize(
    ("job", "path", "call", "between"),
    [
        ("pp2-stale", "decoder", 1, ("layers.1", "layers.2")),
        ("vpp2-epsilon", "decoder.layers.1.input_layernorm", 0, None),
    ],
)
def test_a_fault_of_a_stage_is_named(jobs: Path, whole: str, job: str, path: str, call: int, between: object) -> None:
    report = compared(jobs, whole, job)
    (source,) = report.sources
    found = source.candidate
    assert (found.path, found.micro_batch, found.ranks, source.between) == (path, call, (1,), between), report
    assert f"{path} (micro-batch {call + 1}, rank 1)" in str(report)
    assert (source.reference.micro_batch, source.reference.ranks) == (call, ())


def test_stages_that_do_not_add_up_their_gradients_of_one_embedding_are_named(jobs: Path) -> None:
    report = compared(jobs, "tied", "tied-apart")
    (source,) = report.sources
    assert (source.phase, source.candidate.path, source.cause.name) == (
        "update",
        "embedding.word_embeddings",
        "out_of_step",
    )
    assert source.candidate.ranks == (1,), report
