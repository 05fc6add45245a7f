"""Judge what models return by the loss, where they return nothing in common and a loss is given for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


class Logits(rows.Module):
    def __init__(self) -> None:
        self.body, self.head = rows.Linear(6, 6), rows.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return {"logits": self.head(self.body(x))}


class Losses(columns.Layer):
    """Return what the loss is the mean of, as Megatron's GPT does."""

    def __init__(self, scale: float = 1.0, *, aside: bool = False) -> None:
        self.head, self.body = columns.Dense(6, 3), columns.Dense(6, 6)
        self.scale, self.aside = scale, aside

    def forward(self, x: Any) -> Any:
        hidden = self.body(x)
        losses = _each(self.head(hidden)) * self.scale
        return (losses, hidden) if self.aside else losses


def _each(logits: Any) -> Any:
    return (logits * logits).sum(axis=-1)


def losses() -> tuple[Any, Any]:
    return (
        lambda made: _each(made["logits"]).mean(),
        lambda made: (made[0] if isinstance(made, tuple) else made).mean(),
    )


def test_what_the_loss_is_made_of_is_judged_by_it() -> None:
    report = padiff.diff(Logits(), Losses(), X, loss=losses())
    assert report.aligned, report
    assert report.transfer.verified == report.transfer.copied


def test_a_wrong_loss_is_the_source() -> None:
    (source,) = padiff.diff(Logits(), Losses(1.01), X, loss=losses()).sources
    assert (source.what.kind, source.candidate.path) == ("loss", ""), source


def test_a_fault_inside_is_placed_there() -> None:
    class Wrong(Losses):
        def forward(self, x: Any) -> Any:
            return super().forward(x * 1.01)

    (source,) = padiff.diff(Logits(), Wrong(), X, loss=losses()).sources
    assert (source.what.kind, source.what.taker) == ("input", "body"), source


def test_what_no_gradient_tells_of_has_no_counterpart() -> None:
    """Of two tensors nobody knows of which the candidate's loss is made; without a backward pass, of none."""
    ends = {"output ['logits']", "output"}
    for other, given, places in (
        (Losses(aside=True), {"loss": losses()}, {"output [0]", "output [1]"}),
        (Losses(), {}, ends),
        (Losses(), {"loss": losses(), "phase": "forward"}, ends),
    ):
        report = padiff.diff(Logits(), other, X, **given)
        assert {str(source.what) for source in report.sources} == places, report


@pytest.mark.parametrize(("scale", "sources"), [(1.0, []), (1.01, [("output_gradient", "")])])
def test_recorded_runs_are_judged_by_their_losses_too(tmp_path: Path, scale: float, sources: list[Any]) -> None:
    reference, candidate = Logits(), Losses(scale)
    padiff.diff(reference, candidate, X, loss=losses())
    for model, home, name, made in zip((reference, candidate), (rows, columns), "ab", losses(), strict=True):
        with padiff.record(model, tmp_path / name) as recorder:
            loss = made(model(home.Tensor(X)))
            loss.backward()
            recorder.step(loss.data)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(source.what.kind, source.candidate.path) for source in report.sources] == sources, str(report)


class Critic(rows.Module):
    def __init__(self) -> None:
        self.body, self.head = rows.Linear(6, 6), rows.Linear(6, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).tanh())


@pytest.mark.parametrize("more", [0.0, 1e-4])
def test_a_loss_whose_terms_cancel_rounds_as_these_do(more: float) -> None:
    """A critic's, of real inputs and of others that score nearly as much: a right port was a source."""
    x = np.concatenate([np.tile(X, (8, 1)), np.tile(X, (8, 1)) + np.float32(1e-5)])
    half, signs = len(x) // 2, np.where(np.arange(len(x)) < len(x) // 2, 1, -1).astype(np.float32)[:, None]
    ours = lambda y: y[:half].mean() - y[half:].mean()  # noqa: E731
    theirs = lambda y: (y * type(y)(signs)).sum() / np.float32(half) + more  # noqa: E731
    np.random.seed(0)
    report = padiff.diff(Critic(), Critic(), x, loss=(ours, theirs))
    assert [one.phase.value for one in report.sources] == ["loss"] * bool(more), str(report)
