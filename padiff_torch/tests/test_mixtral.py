"""Give Megatron's GPT, its experts on ranks of their own, the weights of Hugging Face's Mixtral, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import padiff


@pytest.fixture(scope="module")
def jobs(ran: Callable[..., Path]) -> Path:
    return ran("mixtral_jobs.py")


@pytest.mark.parametrize(("one", "other"), [("one/all", "two/experts"), ("one/hand", "back/hand")])
def test_each_rank_is_given_its_own_experts(jobs: Path, one: str, other: str) -> None:
    """All were given what Hugging Face's model holds, whose experts have other names; from two ranks it comes back."""
    report = padiff.compare(jobs / one, jobs / other)
    assert report.aligned, report
    assert not report.coverage.missing, report


@pytest.mark.parametrize("other", ["one/all", "two/experts"])
def test_both_stacks_are_one_model(jobs: Path, other: str) -> None:
    """Inside, one router gives scores and the other shares, and one scales what an expert's second layer takes."""
    report = padiff.compare(jobs / "one/hand", jobs / other)
    assert report.aligned, report
    assert report.recorded.steps == (0, 1)
    assert report.loss == pytest.approx((report.loss[0],) * 2, rel=1e-5), report


def test_experts_in_each_others_place_are_named(jobs: Path) -> None:
    report = padiff.compare(jobs / "one/all", jobs / "two/exchanged")
    paths = {source.candidate.path for source in report.sources}
    assert {source.what.kind for source in report.sources} == {"parameter"}, report
    held = "decoder.layers.1.mlp.experts.local_experts"
    assert paths == {f"{held}.{expert}.{layer}" for expert in (2, 3) for layer in ("linear_fc1", "linear_fc2")}, report
    assert {source.candidate.ranks for source in report.sources} == {(1,)}, report
