"""Compare recorded scripts that differentiate what they made several times in a step: which passes lead to the step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

SIZE = 6


class Tasks(rows.Module):
    """A trunk, of two layers, and a head for each of two tasks; the second layer may send back another gradient."""

    def __init__(self, times: float = 1.0) -> None:
        self.first, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE)
        self.ones, self.others = rows.Linear(SIZE, 3), rows.Linear(SIZE, 2)
        self.times = times

    def forward(self, x: Any) -> Any:
        h = functional.tanh(self.first(x))
        if self.times != 1:
            h = h * np.float32(self.times) + functional.detach(h) * np.float32(1 - self.times)
        h = functional.tanh(self.last(h))
        return self.ones(h), self.others(h)


def compared(
    folder: Path, asked: Sequence[Sequence[int]], *, cleared: bool = True, times: float = 1.0, rates: float = 1.0
) -> padiff.Report:
    """Compare two scripts; ``asked`` are the tasks that each differentiates by themselves, before it trains on both."""
    np.random.seed(0)
    models = Tasks(), Tasks(times)
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    padiff.transfer(*models, x)
    for side, (model, name) in enumerate(zip(models, "ab", strict=True)):
        optimizer = rows.SGD(model.parameters(), 0.1 * (rates if side else 1.0))
        with padiff.record(model, folder / name, optimizer=optimizer) as recorder:
            for _ in range(2):
                losses = [(out * out).mean() for out in model(rows.Tensor(x.copy()))]
                for task in asked[side]:
                    losses[task].backward()
                    if cleared or not side:
                        optimizer.clear()
                (losses[0] * np.float32(0.3) + losses[1] * np.float32(1.7)).backward()
                optimizer.step()
                optimizer.clear()
                recorder.step()
    return padiff.compare(folder / "a", folder / "b")


EACH, ONE, NONE = (0, 1), (1,), ()


@pytest.mark.parametrize("asked", [(NONE, EACH), (EACH, NONE), (ONE, EACH), (EACH, ONE), (EACH, EACH)])
def test_gradients_that_a_script_asks_for_beside_its_step_are_none_of_it(tmp_path: Path, asked: Any) -> None:
    """What came to values in these passes was added to what the loss sent, and right scripts were a source."""
    report = compared(tmp_path, asked)
    assert report.aligned, str(report)
    assert not report.coverage.missing
    assert ("unused_passes" in {note.kind for note in report.notes}) == (asked[0] != asked[1]), str(report)


@pytest.mark.parametrize("asked", [(NONE, EACH), (EACH, NONE), (ONE, EACH), (EACH, EACH)])
def test_what_sends_another_gradient_is_the_one_source_beside_them(tmp_path: Path, asked: Any) -> None:
    (source,) = compared(tmp_path, asked, times=0.7).sources
    assert (source.step, source.phase, source.candidate.path) == (0, Phase.BACKWARD, "")
    assert "the candidate's is 0.7 times the reference's" in str(source)


@pytest.mark.parametrize("asked", [(NONE, EACH), (EACH, NONE), (ONE, EACH)])
def test_another_rate_is_the_one_source_beside_them(tmp_path: Path, asked: Any) -> None:
    (source,) = compared(tmp_path, asked, rates=1.5).sources
    assert (source.step, source.phase, source.cause.name) == (0, Phase.UPDATE, "optimizer_settings")


@pytest.mark.parametrize("asked", [(NONE, EACH), (NONE, ONE), (EACH, EACH)])
def test_gradients_that_are_not_cleared_are_told(tmp_path: Path, asked: Any) -> None:
    report = compared(tmp_path, asked, cleared=False)
    assert not report.aligned
    assert len(report.sources) == 1, str(report)


@pytest.mark.parametrize("side", [0, 1])
def test_gradients_of_a_loss_that_are_cleared_in_front_of_the_next_ones_are_told(tmp_path: Path, side: int) -> None:
    """No value differs: both scripts send it the same, of which one forgets what the first loss sent."""
    np.random.seed(0)
    models = Tasks(), Tasks()
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    padiff.transfer(*models, x)
    for number, (model, name) in enumerate(zip(models, "ab", strict=True)):
        optimizer = rows.SGD(model.parameters(), 0.1)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            for out in reversed(model(rows.Tensor(x.copy()))):
                if number == side:
                    optimizer.clear()
                (out * out).mean().backward()
            optimizer.step()
            recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.cause.name) == (Phase.UPDATE, "optimizer_settings")
    assert source.cause.parameters["gradients"][("reference", "candidate")[side]]["of"] == "last"
