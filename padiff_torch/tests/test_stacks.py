"""Compare one GPT-2 of two stacks: Hugging Face's, by hand or under DeepSpeed, with Megatron's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import padiff

sys.path.insert(0, str(Path(__file__).parent))
import stack_jobs
import vocabulary_jobs

JOBS = list(stack_jobs.JOBS)


def compared(jobs: Path, one: str, other: str) -> Any:
    return padiff.compare(jobs / one, jobs / other)


def test_ten_steps_of_deepspeed_on_two_ranks_and_of_megatron_in_two_shards(jobs: Path) -> None:
    report = compared(jobs, "hf-zero1", "hf-tp2")
    assert report.aligned, report
    assert report.recorded.steps == tuple(range(10))
    assert report.forward_only is None
    paths = {place.path for place in report.coverage.missing}
    assert paths == {"transformer", "transformer.wpe"}  # positions of one batch there, of each of its rows here


@pytest.mark.parametrize(
    ("one", "other"), [("hand", "hf-zero1"), ("hand", "hf-tp2"), ("hf-tp2", "hf-back"), ("hf-tp2", "hf-zero3")]
)
def test_weights_go_from_any_layout_to_any(jobs: Path, one: str, other: str) -> None:
    """From one process to two that share them, on to shards, and back whole and in ZeRO-3's ranges."""
    report = compared(jobs, one, other)
    assert report.aligned, report
    assert report.recorded.steps == (0, 1)


@pytest.mark.parametrize(("one", "other"), [("adam", "adam-zero1"), ("adam", "adam-tp2"), ("adam-zero1", "adam-tp2")])
def test_five_steps_of_adam_of_any_two_stacks(jobs: Path, one: str, other: str) -> None:
    report = compared(jobs, one, other)
    assert report.aligned, report
    assert report.recorded.steps == tuple(range(5))
    assert report.forward_only is None


def test_another_beta_of_adam_is_found_in_the_second_step(jobs: Path) -> None:
    """The first step is the sign of the gradient whatever the betas are."""
    (source,) = compared(jobs, "adam", "adam-betas").sources
    assert (source.what.kind, source.step, source.candidate.path) == ("updates", 1, "transformer")


def test_each_stage_of_a_pipeline_is_given_its_own_layers(jobs: Path) -> None:
    """By their numbers: Hugging Face's have other names."""
    report = compared(jobs, "four", "four-pp2")
    assert report.aligned, report


def test_a_missing_all_reduce_is_named_across_stacks(jobs: Path) -> None:
    (source,) = compared(jobs, "hf-zero1", "hf-tp2-no-all-reduce").sources
    assert (source.reference.path, source.candidate.path) == (
        "transformer.h.1.mlp.c_proj",
        "decoder.layers.1.mlp.linear_fc2",
    )
    assert (source.cause.name, source.cause.parameters["ranks"]) == ("missing_all_reduce", [0, 1])


def test_exchanged_shards_are_named_across_stacks(jobs: Path) -> None:
    (source,) = compared(jobs, "hf-zero1", "hf-tp2-exchanged").sources
    assert (source.what.kind, source.candidate.path) == ("parameter", "decoder.layers.0.mlp.linear_fc1")
    assert (source.cause.name, source.cause.parameters["order"]) == ("shard_order", [1, 0])


def test_a_weight_of_another_shape_is_told_with_what_to_do(jobs: Path) -> None:
    done = padiff.transfer(jobs / "hf-tp2", torch.nn.Sequential(torch.nn.Linear(32, 5)))
    assert done.unmatched_candidate


@pytest.fixture(scope="module")
def alone(group: Any) -> Iterator[None]:
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(1, 1)
    yield
    parallel_state.destroy_model_parallel()


def _of_megatron(tokens: Any) -> dict[str, Any]:
    """Return what Megatron's GPT takes beside tokens, too."""
    length = tokens.shape[1]
    return {
        "input_ids": tokens,
        "position_ids": torch.arange(length)[None].repeat(len(tokens), 1),
        "attention_mask": torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1),
    }


@pytest.mark.parametrize("stage", [None, 1])
def test_one_rank_of_both_by_diff(alone: None, stage: int | None) -> None:
    """Megatron's layers hand their biases on, which Hugging Face's add: biases that are zero hide it."""
    import deepspeed

    ours, theirs = stack_jobs.gpt2(), stack_jobs.gpt(1)
    if stage is not None:
        config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage}}
        config["zero_allow_untested_optimizer"] = True
        optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
        ours = deepspeed.initialize(model=ours, optimizer=optimizer, config=config)[0]
    tokens, _ = stack_jobs.batch(0)
    inputs = _of_megatron(tokens)
    report = padiff.diff(ours, theirs, {"input_ids": tokens}, candidate_inputs=inputs)
    assert report.aligned, report
    assert report.transfer.verified == report.transfer.copied, report
    if stage is None:
        theirs.decoder.layers[1].mlp.linear_fc2.bias.data += 0.1
        report = padiff.diff(ours, theirs, {"input_ids": tokens}, candidate_inputs=inputs, transfer=False)
        assert {source.candidate.path for source in report.sources} == {"decoder.layers.1.mlp.linear_fc2"}, report


@pytest.mark.parametrize("masked", [True, False])
def test_a_padded_vocabulary_by_diff(alone: None, masked: bool) -> None:
    """One model returns logits, the other the loss of each token, of a vocabulary with rows that no token names."""
    ours, theirs = stack_jobs.gpt2(vocabulary_jobs.WORDS), vocabulary_jobs.gpt(56, tied=True)
    if masked:
        vocabulary_jobs.without_padding(theirs, 0)
    tokens, labels = vocabulary_jobs.batch(0)
    losses = lambda output: stack_jobs._loss(output.logits, labels), lambda losses: losses.mean()
    inputs = {**_of_megatron(tokens), "labels": labels}
    report = padiff.diff(ours, theirs, {"input_ids": tokens}, candidate_inputs=inputs, loss=losses)
    (note,) = [note for note in report.notes if note.kind == "padded_rows"]
    assert (note.data["side"], note.data["count"], note.data["real"]) == ("candidate", 56, 50)
    found = [(source.what.kind, source.cause.name, dict(source.cause.parameters)) for source in report.sources]
    assert found == ([] if masked else [("loss", "padding_in_loss", {"real": 50, "rows": 56})]), report
