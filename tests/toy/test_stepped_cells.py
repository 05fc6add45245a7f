"""A cell is called step by step on one side; on the other one layer goes over the whole sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


class Cell(rows.Module):
    def __init__(self) -> None:
        self.into, self.kernel = rows.Linear(4, 4), rows.parameter(4, 4)

    def forward(self, x: Any, state: Any) -> Any:
        return F.tanh(self.into(x) + state @ self.kernel)


class Block(rows.Module):
    def __init__(self) -> None:
        self.norm, self.cell, self.out = rows.LayerNorm(4), Cell(), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y, states = self.norm(x), []
        state = y[:, :1] * 0.0
        for step in range(3):
            state = self.cell(y[:, step : step + 1], state)
            states.append(state)
        return x + self.out(F.sigmoid(F.concat(states, 1)))


class Held(columns.Layer):
    """What holds a parameter, and is not called."""

    def __init__(self) -> None:
        self.first = columns.weight(4, 4)

    def forward(self, x: Any) -> Any:
        raise NotImplementedError


class Memory(columns.Layer):
    """The same for all steps; it holds the kernel itself, or has it in a list."""

    def __init__(self, *, listed: bool) -> None:
        self.gates, self.held = columns.Dense(4, 4), Held() if listed else columns.weight(4, 4)

    def forward(self, x: Any) -> Any:
        kernel = self.held.first if isinstance(self.held, Held) else self.held
        into, states = self.gates(x), []
        state = into[:, :1] * 0.0
        for step in range(3):
            state = F.tanh(into[:, step : step + 1] + state @ kernel)
            states.append(state)
        return F.concat(states, 1)


class Layer(columns.Layer):
    def __init__(self, slope: float, *, listed: bool) -> None:
        self.before, self.memory, self.last = columns.LayerNormalization(4), Memory(listed=listed), columns.Dense(4, 4)
        self.slope = slope

    def forward(self, x: Any) -> Any:
        return x + self.last(F.sigmoid(self.memory(self.before(x)) * self.slope))


@pytest.mark.parametrize("listed", [False, True], ids=["held", "listed"])
@pytest.mark.parametrize("slope", [1.0, 1.1])
def test_blocks_are_matched_whose_cells_are_called_otherwise(slope: float, listed: bool) -> None:
    """They had no counterpart, and what is wrong in the code of one was told as the model's."""
    ours = rows.Sequential(Block(), Block(), rows.Linear(4, 2))
    theirs = columns.Stack(Layer(1.0, listed=listed), Layer(slope, listed=listed), columns.Dense(4, 2))
    report = padiff.diff(ours, theirs, X)
    matched = {(one.reference, one.candidate) for one in report.mapping.modules}
    assert matched >= {("0", "0"), ("1", "1")}, str(report.mapping)
    assert [one.candidate.path for one in report.sources] == ["1"] * (slope != 1.0), str(report)


def test_a_cell_that_is_called_once_more_is_a_source() -> None:
    class Longer(Memory):
        def forward(self, x: Any) -> Any:
            return super().forward(F.tanh(x))

    ours, theirs = (
        rows.Sequential(Block(), rows.Linear(4, 2)),
        columns.Stack(Layer(1.0, listed=True), columns.Dense(4, 2)),
    )
    theirs[0].memory = Longer(listed=True)
    report = padiff.diff(ours, theirs, X)
    assert [one.candidate.path for one in report.sources] == ["0"], str(report)
