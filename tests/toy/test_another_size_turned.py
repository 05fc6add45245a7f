"""Give a value another size in front of code that has its axes in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((3, 9, 4), dtype=np.float32)


class Stacked(rows.Module):
    """Crops a sequence; from there on time comes first."""

    def __init__(self) -> None:
        self.first, self.second = rows.Linear(4, 4), rows.Linear(4, 5)
        self.third, self.last = rows.Linear(5, 6), rows.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        x = self.second(F.tanh(self.first(x))[:, :-2]).transpose(1, 0, 2)
        return self.last(F.tanh(self.third(x))).mean((0,))


class StackedPort(columns.Layer):
    """Leaves the batch in front up to the end."""

    def __init__(self, crop: int, scale: float) -> None:
        self.one, self.two = columns.Dense(4, 4), columns.Dense(4, 5)
        self.three, self.four = columns.Dense(5, 6), columns.Dense(6, 2)
        self.crop, self.scale = crop, scale

    def forward(self, x: Any) -> Any:
        x = self.two(F.tanh(self.one(x))[:, : -self.crop])
        return self.four(F.tanh(self.three(x)) * self.scale).mean((1,))


@pytest.mark.parametrize(
    ("crop", "scale", "places"), [(2, 1.0, []), (3, 1.0, ["two"]), (2, 0.5, ["four"]), (3, 0.5, ["two", "four"])]
)
def test_another_size_in_front_of_turned_axes_is_one_source(crop: int, scale: float, places: list[str]) -> None:
    """The layer that was given the right size was a source: it was read in the run that gives it the wrong one."""
    report = padiff.diff(Stacked(), StackedPort(crop, scale), (X,))
    assert [one.between[1] for one in report.sources if one.between] == places, str(report)
    assert len(report.sources) == len(places), str(report)
