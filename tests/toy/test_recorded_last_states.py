"""Compare scripts of which one steps a cell by itself, and the other has a layer that gives its last state beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import functional, rows

TIMES, SIZE = 6, 5


class Cell(rows.Linear):
    """A layer that is called for each step."""

    def __init__(self) -> None:
        super().__init__(SIZE, SIZE)

    def forward(self, x: Any, state: Any) -> Any:
        return functional.tanh(super().forward(x + state))


class Steps(rows.Module):
    """A layer of all steps: its last state is of no use here, and gets a gradient of zeros, as some frameworks do."""

    def __init__(self) -> None:
        held = rows.Linear(SIZE, SIZE)
        self.weight, self.bias = held.weight, held.bias

    def forward(self, x: Any, state: Any) -> Any:
        states = []
        for time in range(TIMES):
            state = functional.tanh(functional.linear(x[:, time] + state, self.weight.transpose(1, 0), self.bias))
            states.append(state.reshape(len(state.data), 1, SIZE))
        return functional.concat(states, 1), state * np.float32(1)


class Net(rows.Module):
    """A decoder: what it gives is made of all states."""

    def __init__(self, cell: Any, slope: float) -> None:
        self.cell, self.head = cell, rows.Linear(SIZE, 2)
        self.slope = np.float32(slope)

    def forward(self, x: Any) -> Any:
        state = rows.Tensor(np.zeros((len(x.data), SIZE), np.float32))
        if isinstance(self.cell, Steps):
            states, last = self.cell(x, state)
            return self.head(states * self.slope) + last.sum() * np.float32(0)
        states = []
        for time in range(TIMES):
            state = self.cell(x[:, time], state)
            states.append(state.reshape(len(x.data), 1, SIZE))
        return self.head(functional.concat(states, 1) * self.slope)


def train(folder: Path, cell: type[Any], *, slope: float = 1.0) -> None:
    np.random.seed(0)
    net, rng = Net(cell(), slope), np.random.default_rng(1)
    optimizer = rows.SGD(net.parameters(), 0.1)
    with padiff.record(net, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            y = net(rows.Tensor(rng.standard_normal((4, TIMES, SIZE)).astype(np.float32)))
            loss = (y * y).mean()
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("slope", [1.0, 1.1])
@pytest.mark.parametrize("kinds", [(Steps, Cell), (Cell, Steps)])
def test_a_last_state_that_nothing_takes_is_no_state_of_a_step(
    tmp_path: Path, kinds: tuple[type[Any], type[Any]], slope: float
) -> None:
    """Where it is the reference's it was compared with the first state, and a source."""
    for name, kind in zip("ab", kinds, strict=True):
        train(tmp_path / name, kind, slope=slope if name == "b" else 1.0)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (slope == 1.0), str(report)
    assert [one.candidate.path for one in report.sources] == [""] * (slope != 1.0), str(report)
