"""Faults of ranks, planted one at a time in jobs of real processes: each is named with its place and its ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import padiff


@pytest.fixture(scope="module")
def jobs(ran: Callable[..., Path]) -> Path:
    return ran("planted.py")


@pytest.mark.parametrize(
    ("one", "many"),
    [
        *(
            (f"tensor1/{name}", f"tensor2/{name}")
            for name in ("clean", "clean-padded", "clean-clipped", "clean-parts", "clean-told")
        ),
        *(
            (f"one/{kind}-clean", f"two/{kind}-clean")
            for kind in ("hand", "data", "averaged", "slices", "tokens", "table", "shared", "sequences")
        ),
        *(("one/owned-clean", f"two/owned-{kind}") for kind in ("clean", "found")),
        *(("one/owned-signs-clean", f"two/owned-signs-{kind}") for kind in ("clean", "sent")),
        ("one/slices-whole", "two/slices-clean"),
        ("two/slices-clean", "one/slices-clean"),
        ("two/slices-clean", "grid/slices-clean"),
        *(("one/tokens-clean", f"two/tokens-{kind}") for kind in ("sharded", "told", "told-by-hand")),
        *(("one/mixed-clean", f"two/mixed-{kind}") for kind in ("cast", "sharded")),
        ("two/mixed-cast", "two/mixed-sharded"),
        ("one/hand-clean", "tensor2/hand-clean"),
        ("tensor1/clean", "grid/clean"),
    ],
)
def test_jobs_without_a_fault_are_aligned(jobs: Path, one: str, many: str) -> None:
    report = padiff.compare(jobs / one, jobs / many)
    assert report.aligned, report
    assert not report.coverage.missing, report


L0, L1 = "decoder.layers.0", "decoder.layers.1"
UP, DOWN, NORM = f"{L1}.mlp.linear_fc1", f"{L1}.mlp.linear_fc2", f"{L1}.input_layernorm"
BOTH: dict[str, Any] = {"ranks": [0, 1]}
SECOND: dict[str, Any] = {"ranks": [1], "right": [0]}
FIRST: dict[str, Any] = {"ranks": [0], "right": [1]}
APART: dict[str, Any] = {"ranks": [1], "first": 0}
TENSOR: dict[str, tuple[str, str, str, str | None, dict[str, Any]]] = {
    "no-all-reduce": ("clean", "output", DOWN, "missing_all_reduce", BOTH),
    "two-all-reduces": ("clean", "output", DOWN, "reduced_twice", {**BOTH, "times": 2}),
    "averaged": ("clean", "output", DOWN, "averaged", {**BOTH, "times": 2}),
    "column-unreduced": ("clean", "input_gradient", UP, "missing_all_reduce", BOTH),
    "embedding-unmasked": ("clean", "output", "embedding.word_embeddings", "looked_up_by_each", BOTH),
    "gathered-logits": ("clean", "output", "", "logits_gathered", BOTH),
    "padding-in-loss": ("clean-padded", "output", "", "padding_in_loss", {"real": 60, "rows": 64, "ranks": [1]}),
    "shard-order": ("clean", "parameter", UP, "shard_order", {**BOTH, "order": [1, 0]}),
    "qkv-order": ("clean", "parameter", f"{L0}.self_attention.linear_qkv", "reordered", {**BOTH, "dim": 0}),
    "stale-norm": ("clean", "parameter", NORM, "out_of_step", APART),
    "stale-norm-on-0": ("clean", "parameter", NORM, "wrong_on_ranks", FIRST),
    "wrong-shard": ("clean", "parameter", DOWN, "wrong_on_ranks", SECOND),
    "stale-after-step": ("clean", "updated_parameter", UP, "stepped_on_ranks", {**SECOND, "times": 0.0}),
    "clipped-by-shard": ("clean-clipped", "updates", "", "scaled_by_ranks", BOTH),
    "clipped-on-one-side": ("clean-told", "updates", "", "optimizer_settings", {}),
    "divided-twice": ("clean-parts", "output_gradient", "", "loss_scaled", {"times": 0.5}),
    "seed-per-rank": ("clean-dropout", "output", "embedding.embedding_dropout", "out_of_step", APART),
    "rate-on-1": ("clean", "updates", "", "stepped_on_ranks", {**SECOND, "times": 2.0}),
    "rate-on-0": ("clean", "updates", "", "stepped_on_ranks", {**FIRST, "times": 2.0}),
    "kept-on-1": ("clean", "updates", "", "wrong_on_ranks", SECOND),
    "frozen-on-1": ("clean", "parameter_gradient", UP, "nothing_on_ranks", SECOND),
    "frozen-norm-on-1": ("clean", "updates", NORM, "stepped_on_ranks", {**SECOND, "times": 0.0}),
    "positions-on-1": ("clean", "input", "", "out_of_step", APART),
}
DATA: dict[str, tuple[str, str, str | None, dict[str, Any]]] = {
    "hand-bias": ("output", "2", "added_by_each", {"name": "bias", **BOTH}),
    "hand-gathered": ("output", "4", "gathered_order", {**BOTH, "order": [1, 0]}),
    "hand-unsummed": ("output", "2", "missing_all_reduce", BOTH),
    "data-none-reduced": ("updates", "", "gradients_unreduced", BOTH),
    "data-one-unreduced": ("updated_parameter", "3", "gradients_unreduced", BOTH),
    "data-summed": ("updates", "", "optimizer_settings", {}),
    "data-batch": ("input", "", "inputs", {}),
    "data-divided": ("output_gradient", "", "loss_scaled", {"times": 0.5}),
    "data-start": ("parameter", "0", "out_of_step", APART),
    "data-clipped": ("updates", "", "step_scaled", {}),
    "norm-each": ("output", "2", "normalized_by_each", BOTH),
    "slices-undivided": ("output_gradient", "", "loss_scaled", {"times": 2.0}),
    "slices-halved": ("updated_parameter", "3", "given_on_ranks", {"ranks": [1], "first": 0, "times": [0.5]}),
    "slices-kept": ("updates", "", "optimizer_settings", {}),
    "tokens-unreduced": ("updates", "", "gradients_unreduced", BOTH),
    "shared-unreduced": ("updated_parameter", "norm", "gradients_unreduced", BOTH),
    "sequences-stale": ("parameter", "1", "out_of_step", APART),
    "mixed-cast-rate": ("updates", "", "optimizer_settings", {}),
    "mixed-sharded-rate": ("updates", "", "optimizer_settings", {}),
    "mixed-sharded-halved": ("updates", "", "optimizer_settings", {}),
    "tokens-each": ("loss", "", "loss_of_each_rank", BOTH),
}
"""Name of a job -> what differs there, in which module, for which reason, of which ranks."""


@pytest.mark.parametrize(
    ("one", "many", "expected"),
    [
        *((f"tensor1/{reference}", f"tensor2/{name}", told) for name, (reference, *told) in TENSOR.items()),
        *((f"one/{name.partition('-')[0]}-clean", f"two/{name}", told) for name, told in DATA.items()),
        (
            "tensor1/clean",
            "grid/wrong-group",
            ("output", DOWN, "wrong_group", {"ranks": [0, 2], "right": [0, 1]}),
        ),
        *(  # the rank that steps it for all is given half of it
            ("one/owned-clean", f"two/owned-{kind}", ("updated_parameter", "3", "optimizer_settings", {}))
            for kind in ("halved", "found-halved")
        ),
        (  # the weights are the same to the bit
            "one/owned-signs-clean",
            "two/owned-signs-halved",
            ("updated_parameter", "3", "given_on_ranks", {"ranks": [1], "first": 0, "times": [0.5]}),
        ),
        (  # of shards each has replicas of its own, and what these are not given is no other shard's
            "one/slices-clean",
            "grid/slices-halved",
            ("updated_parameter", "3", "given_on_ranks", {"ranks": [3], "first": 1, "times": [2.0]}),
        ),
    ],
)
def test_a_fault_is_the_one_source_and_named_with_its_ranks(jobs: Path, one: str, many: str, expected: Any) -> None:
    kind, path, cause, parameters = expected
    report = padiff.compare(jobs / one, jobs / many)
    assert not report.aligned
    assert {(found.candidate.path, found.cause and found.cause.name) for found in report.sources} == {(path, cause)}, (
        report
    )
    first = report.sources[0]
    assert first.what.kind == kind, report
    assert first.cause is None or parameters.items() <= first.cause.parameters.items(), report


@pytest.mark.parametrize(
    ("one", "many", "told"),
    [
        ("one/data-clean", "two/data-batch", "wrong on rank 1, right on rank 0"),
        ("one/data-clean", "two/data-summed", "ranks 0 and 1 are as many"),
        ("tensor1/clean", "tensor2/rate-on-1", "settings differ between ranks: lr: 0.1 on rank 0, 0.2 on rank 1"),
    ],
)
def test_what_the_ranks_tell_is_told_beside_a_cause(jobs: Path, one: str, many: str, told: str) -> None:
    report = str(padiff.compare(jobs / one, jobs / many))
    assert told in report
    assert "the weights do not show it" not in report


def test_what_ranks_clip_is_told_as_that_of_one_process(jobs: Path) -> None:
    (source,) = padiff.compare(jobs / "tensor1/clean-told", jobs / "tensor2/clipped-on-one-side").sources
    shares = source.cause.parameters["gradients"]
    assert shares["reference"] == {"least": 1.0, "most": 1.0, "limit": None}
    assert shares["candidate"]["least"] == shares["candidate"]["most"] < 0.1, shares
