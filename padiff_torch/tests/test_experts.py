"""Compare Megatron's GPT whose experts lie on ranks of their own with one that has them all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import padiff


@pytest.fixture(scope="module")
def jobs(ran: Callable[..., Path]) -> Path:
    return ran("expert_jobs.py")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("one/clean", "two/clean"),
        ("one/clean", "two/gathered"),
        ("two/moved", "one/clean"),
        ("four/tensor", "two/clean"),
        ("one/clean", "four/clean"),  # two ranks have a copy of each: how many tokens it got is a sum over these
    ],
)
def test_experts_on_ranks_are_the_model_that_has_them_all(jobs: Path, one: str, other: str) -> None:
    """Each rank has tokens of its own: those of an expert come in another order, and by other ways."""
    report = padiff.compare(jobs / one, jobs / other)
    assert report.aligned, report
    assert not report.coverage.missing, report
    assert report.forward_only is None
    called = [call.reference.path for call in report.calls if call.reference and call.candidate]
    assert sum(path.endswith("linear_fc1") for path in called) == 2 * 2 * 4  # steps, layers, experts


LAST = "decoder.layers.1.mlp"
BOTH: dict[str, Any] = {"ranks": [0, 1]}


@pytest.mark.parametrize(
    ("job", "kind", "path", "ranks", "cause", "parameters"),
    [
        ("wrong-expert", "parameter", f"{LAST}.experts.local_experts.3.linear_fc1", (1,), None, {}),
        ("router", "parameter", f"{LAST}.router", (1,), "out_of_step", {"ranks": [1], "first": 0}),
        ("dropped", "output", f"{LAST}.experts.local_experts.3", (1,), None, {}),
        ("not-put-back", "output", LAST, (), None, {}),
        ("averaged", "updates", "decoder.layers", (0, 1), "experts_mixed", BOTH),
        ("not-divided", "updates", "decoder.layers", (), "optimizer_settings", {}),
    ],
)
def test_a_fault_of_experts_is_the_one_source_and_named(
    jobs: Path, job: str, kind: str, path: str, ranks: tuple[int, ...], cause: str | None, parameters: dict[str, Any]
) -> None:
    report = padiff.compare(jobs / "one/clean", jobs / "two" / job)
    (source,) = report.sources
    found = source.what.kind, source.candidate.path, source.candidate.ranks, source.cause and source.cause.name
    assert found == (kind, path, ranks, cause), report
    assert source.cause is None or parameters.items() <= source.cause.parameters.items(), report
