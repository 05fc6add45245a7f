"""A layer that is called without gradients until nothing moves, and once with them (a deep equilibrium)."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff import Phase

X = {"x": np.random.default_rng(0).standard_normal((8, 3), dtype=np.float32)}
WIDTH = 8


class Cell(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map, self.norm = torch.nn.Linear(WIDTH, WIDTH), torch.nn.GroupNorm(4, WIDTH)

    def forward(self, z: Any, x: Any) -> Any:
        return self.norm(torch.relu(self.map(z) + x))


class Equilibrium(torch.nn.Module):
    """The norm behind the cell takes the scale of each channel away: the gradient of that scale is rounding alone."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.cell = torch.nn.Linear(3, WIDTH), Cell()
        self.norm, self.head = torch.nn.BatchNorm1d(WIDTH), torch.nn.Linear(WIDTH, 2)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(6):
                z = self.cell(z, x)
        return self.head(self.norm(self.cell(z, x)))


class Step(paddle.nn.Layer):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.linear, self.norm, self.fault = paddle.nn.Linear(WIDTH, WIDTH), paddle.nn.GroupNorm(4, WIDTH), fault

    def forward(self, state: Any, drive: Any) -> Any:
        y = paddle.nn.functional.relu(self.linear(state) + drive)
        return self.norm(y * 0.5 + y.detach() * 0.5 if self.fault == "halved" else y)


class Solver(paddle.nn.Layer):
    def __init__(self, steps: int = 6, fault: str = "") -> None:
        super().__init__()
        self.first, self.step, self.steps = paddle.nn.Linear(3, WIDTH), Step(fault), steps
        self.norm, self.out = paddle.nn.BatchNorm1D(WIDTH), paddle.nn.Linear(WIDTH, 2)

    def forward(self, x: Any) -> Any:
        drive = self.first(x)
        with paddle.no_grad():
            state = paddle.zeros_like(drive)
            for _ in range(self.steps):
                state = self.step(state, drive)
        return self.out(self.norm(self.step(state, drive)))


def test_calls_without_gradients_tell_nothing_of_a_parameters_gradient() -> None:
    report = padiff.diff(Equilibrium(), Solver(), X)
    assert report.aligned, report


def test_a_gradient_that_the_last_call_halves_is_one_source_there() -> None:
    report = padiff.diff(Equilibrium(), Solver(fault="halved"), X)
    assert {(found.phase, found.candidate.path) for found in report.sources} == {(Phase.BACKWARD, "step")}, report


@pytest.mark.parametrize(("steps", "path"), [(3, ""), (5, ""), (7, "step")])
def test_other_numbers_of_steps_leave_the_call_with_gradients_its_counterpart(steps: int, path: str) -> None:
    report = padiff.diff(Equilibrium(), Solver(steps), X)
    assert [(found.phase, found.candidate.path) for found in report.sources] == [(Phase.FORWARD, path)], report
    assert report.sources[0].candidate.call == (steps - 1 if path else 0)
