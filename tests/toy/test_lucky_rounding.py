"""Compare a single number, of which the reference happened to round little, with a side that lacks float64."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.testing.toy import columns, rows

X = np.random.default_rng(408).standard_normal((1, 13)).astype(np.float32) * np.float32(3)


class Sum(rows.Module):
    """The exponential of the sum of what a layer gives."""

    def __init__(self) -> None:
        self.layer = rows.Linear(13, 13)

    def forward(self, x: Any) -> Any:
        terms = self.layer(x)
        total = terms[:, :1]
        for place in range(1, 13):
            total = total + terms[:, place : place + 1]
        return total.exp()


class Turned(columns.Layer):
    """The same, summed from the other end, by a kernel that has no float64."""

    def __init__(self, scale: float) -> None:
        self.layer, self.scale = columns.Dense(13, 13), scale

    def forward(self, x: Any) -> Any:
        if x.dtype == "float64":
            msg = "no kernel for float64"
            raise TypeError(msg)
        terms = self.layer(x)
        total = terms[:, 12:]
        for place in range(11, -1, -1):
            total = total + terms[:, place : place + 1]
        return total.exp() * self.scale


def test_rounding_is_measured_on_inputs_close_by_too() -> None:
    """0.6 took the epsilon that the reference happened to round here for what such code rounds."""
    report = padiff.diff(Sum(), Turned(1.0), (X,), phase="forward")
    assert report.aligned, str(report)


def test_a_small_fault_is_more_than_that() -> None:
    """It is as large as what rounding may explain where neither side has float64."""
    report = padiff.diff(Sum(), Turned(0.999995), (X,), phase="forward")
    assert [(one.candidate.path, one.between) for one in report.sources] == [("", ("layer", "end"))], str(report)
