"""Compare Megatron's GPT whose sequences lie in parts on the ranks with one rank, and with other layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import padiff


@pytest.fixture(scope="module")
def jobs(ran: Callable[..., Path]) -> Path:
    return ran("context_jobs.py")


INSIDE = ("core_attention", "core_attention.attention_dropout")
"""What Megatron's own attention does, and the one of ranks that share a sequence does otherwise."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("one/clean", "two/clean"),
        ("one/rope", "two/rope"),
        ("two/moved", "one/clean"),
        ("two/tensor", "two/clean"),
        ("two/clean", "two/back"),
        ("two/clean", "four/four"),
        ("four/data", "one/clean"),
        ("four/tensor", "four/four"),
        ("one/sketch", "two/sketch"),
    ],
)
def test_parts_from_both_ends_of_a_sequence_make_it(jobs: Path, one: str, other: str) -> None:
    report = padiff.compare(jobs / one, jobs / other)
    assert report.aligned, report
    assert report.forward_only is None
    inside = {f"decoder.layers.{layer}.self_attention.{name}" for layer in (0, 1) for name in INSIDE}
    assert {place.path for place in report.coverage.missing} <= inside, report


ATTENTION = "decoder.layers.1.self_attention.core_attention"
BOTH: dict[str, Any] = {"ranks": [0, 1]}


def test_sketches_name_a_fault_of_shared_sequences(jobs: Path) -> None:
    report = padiff.compare(jobs / "one/sketch", jobs / "two/sketch-own-keys")
    assert [(source.what.kind, source.candidate.path) for source in report.sources] == [("output", ATTENTION)], report


@pytest.mark.parametrize(
    ("one", "job", "kind", "path", "ranks", "cause", "parameters"),
    [
        ("clean", "keys-by-rank", "output", ATTENTION, (), None, {}),
        ("clean", "keys-unsummed", "input_gradient", ATTENTION, (), None, {}),
        ("clean", "own-keys", "output", ATTENTION, (1,), "wrong_on_ranks", {"ranks": [1], "right": [0]}),
        ("clean", "places", "input", "", (), "inputs", {"name": "position_ids"}),
        ("clean", "mask", "input", "", (), "inputs", {"name": "attention_mask"}),
        ("rope", "rotated", "output", "rotary_pos_emb", (0, 1), "chunk_order", {**BOTH, "ends": True}),
        ("clean", "unreduced", "updates", "", (0, 1), "missing_all_reduce", BOTH),
        ("clean", "summed", "updates", "", (), "optimizer_settings", {}),
        ("clean", "stale-norm", "parameter", "decoder.layers.1.pre_mlp_layernorm", (1,), "out_of_step", {"ranks": [1]}),
    ],
)
def test_a_fault_of_shared_sequences_is_the_one_source_and_named(
    jobs: Path,
    one: str,
    job: str,
    kind: str,
    path: str,
    ranks: tuple[int, ...],
    cause: str | None,
    parameters: dict[str, Any],
) -> None:
    report = padiff.compare(jobs / "one" / one, jobs / "two" / job)
    (source,) = report.sources
    found = source.what.kind, source.candidate.path, source.candidate.ranks, source.cause and source.cause.name
    assert found == (kind, path, ranks, cause), report
    assert source.cause is None or parameters.items() <= source.cause.parameters.items(), report


@pytest.mark.parametrize("job", ["places", "mask"])
def test_what_does_not_lie_as_the_tokens_do_is_told(jobs: Path, job: str) -> None:
    report = str(padiff.compare(jobs / "one/clean", jobs / "two" / job))
    assert "ranks 0 and 1 have one part each, where they are given a part from each end of other values" in report
