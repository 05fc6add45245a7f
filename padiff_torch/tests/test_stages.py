"""Compare Megatron's GPT as it is trained over several dimensions, with micro-batches, against one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import padiff

JOBS = ["whole", "pp2", "vpp2", "tp2-pp2", "pp2-stale", "vpp2-epsilon"]


def compared(jobs: Path, one: str, other: str) -> Any:
    return padiff.compare(jobs / one, jobs / other)


@pytest.mark.parametrize("job", ["pp2", "vpp2", "tp2-pp2"])
def test_a_pipeline_is_the_model_that_its_stages_make(jobs: Path, job: str) -> None:
    for pair in (("whole", job), (job, "whole")):
        report = compared(jobs, *pair)
        assert report.aligned, report
        assert not report.coverage.missing, report
        models = [call.reference.call for call in report.calls if call.candidate and not call.candidate.path]
        assert models == [0, 1] * 2  # micro-batches and steps


def test_two_pipelines_of_other_schedules_are_compared(jobs: Path) -> None:
    assert compared(jobs, "pp2", "vpp2").aligned


@pytest.mark.parametrize(
    ("job", "path", "call", "between"),
    [
        ("pp2-stale", "decoder", 1, ("layers.1", "layers.2")),
        ("vpp2-epsilon", "decoder.layers.1.input_layernorm", 0, None),
    ],
)
def test_a_fault_of_a_stage_is_named(jobs: Path, job: str, path: str, call: int, between: object) -> None:
    report = compared(jobs, "whole", job)
    (source,) = report.sources
    found = source.candidate
    assert (found.path, found.micro_batch, found.ranks, source.between) == (path, call, (1,), between), report
    assert f"{path} (micro-batch {call + 1}, rank 1)" in str(report)
    assert (source.reference.micro_batch, source.reference.ranks) == (call, ())
