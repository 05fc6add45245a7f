"""Layers beside each other that take values of different shapes, and that a port calls in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F


class Gates(rows.Module):
    """Coordinate attention: a gate for each row of an image, and one for each column."""

    def __init__(self) -> None:
        self.shared, self.along, self.across = rows.Linear(4, 3), rows.Linear(3, 4), rows.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        both = F.tanh(self.shared(F.concat([x.mean(2), x.mean(1)], 1)))
        size = x.shape[1]
        across = self.across(both[:, size:].reshape(len(x.data), 1, -1, 3))
        return x * F.sigmoid(across) * F.sigmoid(self.along(both[:, :size].reshape(len(x.data), -1, 1, 3)))


class Port(columns.Layer):
    """The same with the gate of rows first, and names that say nothing."""

    def __init__(self, fault: str) -> None:
        self.third, self.second, self.first = columns.Dense(3, 4), columns.Dense(3, 4), columns.Dense(4, 3)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        both = self.first(F.concat([x.mean(2), x.mean(1)], 1))
        both, size = F.sigmoid(both) if self.fault == "both" else F.tanh(both), x.shape[1]
        y = x * F.sigmoid(self.second(both[:, :size].reshape(len(x.data), -1, 1, 3)))
        gate = F.sigmoid(self.third(both[:, size:].reshape(len(x.data), 1, -1, 3)))
        return y + gate if self.fault == "sum" else y * gate


@pytest.mark.parametrize("fault", ["", "both", "sum"])
@pytest.mark.parametrize("size", [(5, 5), (5, 6)])
def test_layers_whose_values_have_another_shape_are_exchanged(size: tuple[int, int], fault: str) -> None:
    """Read in another order of axes, or without a counterpart, what they give fitted no other partner."""
    x = np.random.default_rng(0).standard_normal((2, *size, 4)).astype(np.float32)
    report = padiff.diff(Gates(), Port(fault), x)
    assert report.aligned is (not fault), str(report)
    assert ("along", "second") in {(one.reference, one.candidate) for one in report.mapping.modules}, str(report)
    places = {source.between and source.between[1] for source in report.sources}
    assert places == {"": set(), "both": {"second", "third"}, "sum": {"end"}}[fault], str(report)


def test_layers_that_make_little_are_exchanged_beside_a_fault() -> None:
    """What is wrong before them hid that their exchange makes right what is made of them."""
    ours = Gates()
    for layer in (ours.along, ours.across):
        layer.weight.data[...] *= 1e-3
    report = padiff.diff(ours, Port("both"), np.random.default_rng(0).standard_normal((2, 5, 5, 4)).astype(np.float32))
    assert {source.between and source.between[1] for source in report.sources} == {"second", "third"}, str(report)
