"""Compare Megatron's GPT with what it takes of other dimensions than a pipeline's: sequences, micro-batches, data."""

from __future__ import annotations

from pathlib import Path

import pytest

import padiff

WHOLE, TWICE = ({"least": times, "most": times, "limit": None} for times in (1.0, 2.0))
JOBS = ["whole", "sp2-unreduced", "micro3", "dp2-summed", "whole-adam", "dp2-distributed"]


def test_the_distributed_optimizer_steps_as_a_plain_one_does(jobs: Path) -> None:
    report = padiff.compare(jobs / "whole-adam", jobs / "dp2-distributed")
    assert report.aligned, report
    assert not report.coverage.missing, report


@pytest.mark.parametrize(
    ("job", "path", "cause", "parameters"),
    [
        ("sp2-unreduced", "decoder.layers.1.pre_mlp_layernorm", "gradients_unreduced", {"ranks": [0, 1]}),
        ("dp2-summed", "", "optimizer_settings", {"gradients": {"reference": WHOLE, "candidate": TWICE}}),
        ("micro3", "", "micro_batches", {"reference": 2, "candidate": 3}),
    ],
)
def test_a_fault_is_named_with_module_and_ranks(
    jobs: Path, job: str, path: str, cause: str, parameters: object
) -> None:
    (source,) = padiff.compare(jobs / "whole", jobs / job).sources
    assert (source.candidate.path, source.cause.name, dict(source.cause.parameters)) == (path, cause, parameters)
