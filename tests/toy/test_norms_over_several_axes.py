"""Norms over several axes, whose parameters one side holds in as many axes and the other one along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype(np.float32)


class Images(rows.Module):
    """A convolution, and a norm over all of an image."""

    def __init__(self, random: bool) -> None:
        self.first, self.norm, self.last = rows.Conv2d(3, 2, 1), rows.LayerNorm((2, 5, 4)), rows.Conv2d(2, 2, 1)
        if not random:
            self.norm.weight.data[...], self.norm.bias.data[...] = 1.0, 0.0

    def forward(self, x: Any) -> Any:
        return self.last(F.tanh(self.norm(self.first(x))))


class Port(columns.Layer):
    """The same with the channels last in all that it calls, or first in what it gives the norm."""

    def __init__(self, random: bool, epsilon: float, last: bool) -> None:
        shape = (5, 4, 2) if last else (2, 5, 4)
        self.norm, self.last = columns.LayerNormalization(shape, epsilon), last
        self.end, self.start = columns.Conv(2, 2, 1), columns.Conv(3, 2, 1)
        if not random:
            self.norm.gamma.data[...], self.norm.beta.data[...] = 1.0, 0.0

    def forward(self, x: Any) -> Any:
        y = self.start(x.transpose(0, 2, 3, 1))
        y = self.norm(y) if self.last else self.norm(y.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
        return self.end(F.tanh(y)).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("random", [True, False])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
def test_its_parameters_may_lie_along_one_axis(last: bool, random: bool, epsilon: float) -> None:
    """They had another shape. Of ones and zeros only gradients tell in what order they lie, or values around."""
    port = Port(random, epsilon, last)
    report = padiff.diff(Images(random), port, X)
    assert [one.candidate.path for one in report.sources] == ([] if epsilon == 1e-5 else ["norm"]), str(report)
    assert report.aligned is (epsilon == 1e-5), str(report)
