"""Compare layers of two blocks each with a chain of the blocks: no block is the layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((3, 4, 6)).astype(np.float32)


class Gain(rows.Module):
    """A gain by hand."""

    def __init__(self) -> None:
        self.weight = rows.parameter(6, scale=0.3)

    def forward(self, x: Any) -> Any:
        return F.tanh(x) * (1.0 + self.weight)


class Layer(rows.Module):
    """Two blocks with a residual each, and gains before and behind what they do."""

    def __init__(self) -> None:
        self.one, self.two = rows.Sequential(rows.Linear(6, 6), rows.Linear(6, 6)), rows.Linear(6, 6)
        self.before_one, self.behind_one, self.before_two, self.behind_two = (Gain() for _ in range(4))

    def forward(self, x: Any) -> Any:
        x = x + self.behind_one(self.one(self.before_one(x)))
        return x + self.behind_two(self.two(self.before_two(x)))


class Scale(columns.Layer):
    def __init__(self, fault: float) -> None:
        self.gain, self.fault = columns.weight(6), fault

    def forward(self, x: Any) -> Any:
        return F.tanh(x) * (self.fault + self.gain)


class Block(columns.Layer):
    """A residual around one of the two; the first of them is the larger one."""

    def __init__(self, fault: float, *, first: bool) -> None:
        self.inner = columns.Stack(columns.Dense(6, 6), columns.Dense(6, 6)) if first else columns.Dense(6, 6)
        self.pre, self.post = Scale(fault), Scale(fault)

    def forward(self, x: Any) -> Any:
        return x + self.post(self.inner(self.pre(x)))


@pytest.mark.parametrize("fault", [1.0, 0.0])
@pytest.mark.parametrize("ours", [True, False], ids=["candidate", "reference"])
def test_gains_that_are_wrong_are_the_only_sources(ours: bool, fault: float) -> None:
    """Layers were matched with the first of their blocks, and their ends called sources too."""
    blocks = columns.Stack(*(Block(fault if place in (2, 3) else 1.0, first=place % 2 == 0) for place in range(6)))
    models = rows.Sequential(*(Layer() for _ in range(3))), blocks
    report = padiff.diff(*(models if ours else models[::-1]), (X,))
    found = [getattr(source, "candidate" if ours else "reference").path for source in report.sources]
    assert found == ([] if fault else ["2.pre", "2.post", "3.pre", "3.post"]), str(report)
