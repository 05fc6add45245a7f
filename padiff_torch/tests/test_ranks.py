"""Compare jobs of several real processes, as they were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import padiff

JOBS = ["tp1", "tp2", "tp2-no-all-reduce", "tp2-stale-norm", "plain", "ddp2", "fsdp2", "zero1", "zero2", "zero3"]
JOBS += ["zero3-rate", "with-adam", "fsdp1", "fsdp1-adam", "fsdp1-halved", "fsdp1-rates", "fsdp1-sketched"]
JOBS += ["fsdp2-adam", "fsdp2-halved", "fsdp2-halved-sketched"]


def compared(jobs: Path, one: str, other: str) -> Any:
    return padiff.compare(jobs / one, jobs / other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("tp1", "tp2"), ("tp2", "tp1"), ("tp2", "tp2")),
        *(("plain", name) for name in ("ddp2", "fsdp1", "fsdp1-sketched", "fsdp2", "zero1", "zero2", "zero3")),
        *(("with-adam", name) for name in ("fsdp1-adam", "fsdp2-adam")),
    ],
)
def test_jobs_that_compute_the_same_are_aligned(jobs: Path, one: str, other: str) -> None:
    report = compared(jobs, one, other)
    assert report.aligned, report
    assert not report.coverage.missing, report
    assert report.recorded.steps == (0, 1)


@pytest.mark.parametrize(
    ("job", "path", "cause"),
    [
        ("tp2-no-all-reduce", "decoder.layers.1.mlp.linear_fc2", "missing_all_reduce"),
        ("tp2-stale-norm", "decoder.layers.1.input_layernorm", "out_of_step"),
    ],
)
def test_a_fault_is_named_with_its_module_and_its_ranks(jobs: Path, job: str, path: str, cause: str) -> None:
    report = compared(jobs, "tp1", job)
    (source,) = report.sources
    assert (source.candidate.path, source.cause.name) == (path, cause), report
    assert source.cause.parameters["ranks"] == ([0, 1] if cause == "missing_all_reduce" else [1])


@pytest.mark.parametrize(("job", "rate"), [("zero3-rate", "0.12"), ("fsdp1-rates", "0.1 on rank 0, 0.2 on rank 1")])
def test_a_learning_rate_of_a_sharded_optimizer_is_the_cause(jobs: Path, job: str, rate: str) -> None:
    """What is stepped are flat ranges: of ZeRO-3 all groups have the rate, of FSDP1 ranks have one each."""
    report = compared(jobs, "plain", job)
    (source,) = report.sources
    assert source.cause == f"lr: 0.1 in the reference, {rate} in the candidate", report


@pytest.mark.parametrize("job", ["fsdp1-halved", "fsdp2-halved", "fsdp2-halved-sketched"])
def test_gradients_that_a_sharded_optimizer_is_given_otherwise_are_the_cause(jobs: Path, job: str) -> None:
    """What arrived is known of the gathered parameters, before the ranks put it together."""
    (source,) = compared(jobs, "with-adam", job).sources
    assert (source.phase, source.cause.parameters["gradients"]["candidate"]["most"]) == ("update", 0.5)
