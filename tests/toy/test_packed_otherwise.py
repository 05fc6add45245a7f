"""Layers that pack others of other shapes are no repetition of each other: each may pack in an order of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


class Block(rows.Module):
    """A layer that gives what a block takes off, and what it adds to the result, one behind the other."""

    def __init__(self, width: int, turned: bool) -> None:
        self.inner, self.both, self.width, self.turned = rows.Linear(8, 6), rows.Linear(6, 4 + width), width, turned

    def forward(self, x: Any) -> Any:
        y = self.both(F.relu(self.inner(x)))
        size = self.width if self.turned else 4
        first, second = y[..., :size], y[..., size:]
        off, on = (first, second) if self.turned else (second, first)
        return (F.concat([off, off]) if self.width == 4 else off), on


class Halves(columns.Layer):
    def __init__(self, width: int, slope: float) -> None:
        self.on, self.off, self.slope = columns.Dense(6, 4), columns.Dense(6, width), slope
        self.hidden, self.width = columns.Dense(8, 6), width

    def forward(self, x: Any) -> Any:
        y = F.relu(self.hidden(x))
        off, on = self.off(y), self.on(y) * self.slope
        return (F.concat([off, off]) if self.width == 4 else off), on


class Reduced(rows.Module):
    def __init__(self) -> None:
        self.blocks = rows.ModuleList(Block(4, False), Block(4, False), Block(8, True))

    def forward(self, x: Any) -> Any:
        total: Any = 0
        for block in self.blocks:
            off, on = block(x)
            x, total = x - off, on + total
        return total


class Port(columns.Layer):
    def __init__(self, slopes: Sequence[float]) -> None:
        self.stack = columns.Layers(*(Halves(width, slope) for width, slope in zip((4, 4, 8), slopes, strict=True)))

    def forward(self, x: Any) -> Any:
        total: Any = 0
        for block in self.stack:
            off, on = block(x)
            x, total = x - off, on + total
        return total


def test_layers_of_other_shapes_may_pack_in_another_order() -> None:
    """N-BEATS' generic block gives the backcast first, its others the forecast: the right port was told apart."""
    report = padiff.diff(Reduced(), Port([1, 1, 1]), X)
    assert report.aligned, str(report)


@pytest.mark.parametrize("place", [0, 2])
def test_a_fault_beside_them_is_named_there(place: int) -> None:
    report = padiff.diff(Reduced(), Port([1.1 if i == place else 1 for i in range(3)]), X)
    (source,) = report.sources
    assert source.candidate.path == f"stack.{place}", str(report)
