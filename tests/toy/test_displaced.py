"""Match a matrix of concatenated inputs with two that are added up, in front of a layer that is as large as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((5, 4)).astype(np.float32) for _ in range(2))


class Joined(rows.Module):
    """A perceptron on two values, of which the first layer and the second are square."""

    def __init__(self) -> None:
        self.first, self.second, self.third = rows.Linear(8, 8), rows.Linear(8, 8), rows.Linear(8, 4)

    def forward(self, x: Any, y: Any) -> Any:
        return self.third(F.tanh(self.second(F.tanh(self.first(F.concat([x, y]))))))


class Added(columns.Layer):
    """The same with a layer for each value."""

    def __init__(self, fault: float) -> None:
        self.of_x, self.of_y, self.fault = columns.Dense(4, 8), columns.Dense(4, 8, False), fault
        self.middle, self.last = columns.Dense(8, 8), columns.Dense(8, 4)

    def forward(self, x: Any, y: Any) -> Any:
        made = F.tanh(self.of_x(x) + self.of_y(y) * self.fault)
        return self.last(F.tanh(self.middle(made)))


class Steps(rows.Module):
    """Two of them."""

    def __init__(self) -> None:
        self.steps = rows.ModuleList(Joined(), Joined())

    def forward(self, x: Any, y: Any) -> Any:
        for step in self.steps:
            x = x + step(x, y)
        return x


class Layers(columns.Layer):
    """Two of them."""

    def __init__(self, fault: float) -> None:
        self.one, self.two = Added(1.0), Added(fault)

    def forward(self, x: Any, y: Any) -> Any:
        x = x + self.one(x, y)
        return x + self.two(x, y)


@pytest.mark.parametrize("fault", [1.0, 1.01])
@pytest.mark.parametrize("turned", [False, True], ids=["apart", "joined"])
@pytest.mark.parametrize("steps", [False, True], ids=["one", "two"])
def test_the_layer_behind_is_not_taken_for_the_one_that_packs(steps: bool, turned: bool, fault: float) -> None:
    """The first layer was matched with the one behind, and the second packed those in front: right ports were wrong."""
    ours, theirs = (Steps(), Layers(fault)) if steps else (Joined(), Added(fault))
    report = padiff.diff(theirs, ours, (X, Y)) if turned else padiff.diff(ours, theirs, (X, Y))
    assert report.aligned is (fault == 1), str(report)
    assert [one.what.taker.split(".")[-1] for one in report.sources] == ["second" if turned else "middle"] * (
        fault != 1
    ), str(report)
