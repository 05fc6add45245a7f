"""Run like branches on different inputs of the model, or to different outputs, in another order and by other names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

RNG = np.random.default_rng(0)
X, Z = (RNG.standard_normal((4, 6)).astype(np.float32) for _ in range(2))


class Towers(rows.Module):
    """Two towers, one for each input, and the product of what they give."""

    def __init__(self) -> None:
        self.user, self.item = (rows.Sequential(rows.Linear(6, 8), rows.Tanh(), rows.Linear(8, 3)) for _ in range(2))

    def forward(self, x: Any, z: Any) -> Any:
        return F.tanh(self.user(x) * self.item(z))


class Ported(columns.Layer):
    """The same, the towers' layers in lists, the second tower's called first."""

    def __init__(self, fault: str) -> None:
        self.first, self.second = (columns.Layers(columns.Dense(6, 8), columns.Dense(8, 3)) for _ in range(2))
        self.fault = fault

    def forward(self, x: Any, z: Any) -> Any:
        first, second = list(self.first), list(self.second)
        item = first[1](F.tanh(first[0](z * 1.01 if self.fault == "input" else z)))
        hidden = second[0](x)
        user = second[1](hidden if self.fault == "inside" else F.tanh(hidden))
        return F.tanh(user * item)


@pytest.mark.parametrize("turned", [False, True], ids=["first", "last"])
def test_towers_called_in_another_order_are_told_by_their_inputs(turned: bool) -> None:
    """0.6 took the order of the calls for which is which, and called both towers wrong."""
    sides = Towers(), Ported("")
    report = padiff.diff(*(sides[::-1] if turned else sides), (X, Z))
    assert report.aligned, str(report)


FAULTS = [("input", ("start", "first.0")), ("inside", ("second.0", "second.1"))]


@pytest.mark.parametrize(("fault", "between"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_fault_in_one_of_them_is_placed_there(fault: str, between: tuple[str, str]) -> None:
    """The other tower is right."""
    report = padiff.diff(Towers(), Ported(fault), (X, Z))
    assert [(one.candidate.path, one.between) for one in report.sources] == [("", between)], str(report)


class Bag(rows.Module):
    """The mean of the rows of a table that are told by number."""

    def __init__(self) -> None:
        self.weight = rows.parameter(9, 6)

    def forward(self, numbers: Any) -> Any:
        return F.embedding(numbers, self.weight).mean(1)


class Bags(rows.Module):
    def __init__(self) -> None:
        self.bags = rows.ModuleList(Bag(), Bag())
        self.layers = rows.ModuleList(rows.Linear(6, 3), rows.Linear(6, 3))

    def forward(self, x: Any, z: Any) -> Any:
        (first, second), (one, two) = self.bags, self.layers
        return F.tanh(one(first(x)) * two(second(z)))


class Tables(columns.Layer):
    """The same by tables, whose rows the code around takes the mean of."""

    def __init__(self, scale: float) -> None:
        self.t, self.u = columns.Embed(9, 6), columns.Embed(9, 6)
        self.v, self.w = columns.Dense(6, 3), columns.Dense(6, 3)
        self.scale = scale

    def forward(self, x: Any, z: Any) -> Any:
        return F.tanh(self.v(self.t(x).mean(1)) * self.w(self.u(z).mean(1)) * self.scale)


def test_tables_are_not_exchanged_behind_a_small_fault() -> None:
    """0.6 exchanged them: what they give is compared nowhere, so that the code around them was as right as before."""
    numbers = RNG.integers(0, 9, (4, 2)), RNG.integers(0, 9, (4, 3))
    assert padiff.diff(Bags(), Tables(1.0), numbers).aligned
    report = padiff.diff(Bags(), Tables(1.00001), numbers)
    assert [(one.candidate.path, one.between) for one in report.sources] == [("", ("w", "end"))], str(report)


class Heads(rows.Module):
    """Two heads on one input, each for an output of its own."""

    def __init__(self) -> None:
        self.user, self.item = (rows.Sequential(rows.Linear(6, 8), rows.Tanh(), rows.Linear(8, 3)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return self.user(x), self.item(x)


class Turned(columns.Layer):
    """The same, the second head called first."""

    def __init__(self, fault: bool) -> None:
        self.first, self.second = (columns.Layers(columns.Dense(6, 8), columns.Dense(8, 3)) for _ in range(2))
        self.fault = fault

    def forward(self, x: Any) -> Any:
        (one, two), (three, four) = self.first, self.second
        hidden = one(x)
        item = two(hidden if self.fault else F.tanh(hidden))
        return four(F.tanh(three(x))), item


def test_heads_called_in_another_order_are_told_by_their_outputs() -> None:
    """0.6 took the order of the calls for which is which, and called both outputs wrong."""
    report = padiff.diff(Heads(), Turned(False), (X,))
    assert report.aligned, str(report)
    report = padiff.diff(Heads(), Turned(True), (X,))
    assert [(one.candidate.path, one.between) for one in report.sources] == [("", ("first.0", "first.1"))], str(report)
