"""Compare scripts whose losses hang on differences of scores alone: no gradient comes to what is added to all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

BATCH, SIZE, RATE = 6, 5, 0.002


class Net(rows.Module):
    """A model that gives a score; the scores are small, whatever is added to them."""

    def __init__(self) -> None:
        self.first, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 1)
        self.first.weight.data[...] *= np.float32(0.01)
        self.first.bias.data[...] = self.last.bias.data[...] = 0

    def forward(self, x: Any, slope: float) -> Any:
        return self.last(functional.tanh(self.first(x)) * np.float32(slope))


class Signs(rows.SGD):
    """Steps as far, however long gradients are; ``rounds`` is which way those go that are rounding alone."""

    rounds = 1

    def step(self) -> None:
        for tensor in self.parameters:
            rounded = np.abs(tensor.grad) < 1e-7
            tensor.data[...] -= np.float32(self.lr) * np.where(rounded, self.rounds, np.sign(tensor.grad))


def train(folder: Path, *, rounds: int, slope: float = 1.0, late: float = 1.0, weight: float = 1.0) -> None:
    """Train on winners and losers; from the second step on scores may be ``late`` times as large."""
    np.random.seed(0)
    model, rng = Net(), np.random.default_rng(1)
    optimizer = Signs(model.parameters(), RATE)
    optimizer.rounds = rounds
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for step in range(4):
            x = rng.standard_normal((2 * BATCH, SIZE)).astype(np.float32)
            scores = model(rows.Tensor(x), late if step else slope)
            apart = scores[:BATCH] - scores[BATCH:] - np.float32(1)
            loss = (apart * apart).mean() * np.float32(weight)
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),  # the last layer was a source, whose bias steps by rounding alone
        ({"slope": 1.1, "late": 1.1}, (0, Phase.FORWARD, "")),
        ({"late": 4.0}, (1, Phase.FORWARD, "")),
        ({"weight": 1.1}, (0, Phase.LOSS, "")),
    ],
)
def test_a_bias_that_no_loss_hangs_on_may_differ_by_any_step(tmp_path: Path, fault: dict[str, Any], place: Any) -> None:
    train(tmp_path / "a", rounds=1)
    train(tmp_path / "b", rounds=-1, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.step, one.phase, one.candidate.path) for one in report.sources] == [place] * (place is not None), (
        report
    )
    assert report.aligned is (place is None), report
