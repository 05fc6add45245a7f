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


class Heads(rows.Module):
    """Attention behind a gate, with weights that keep heads apart: (in, heads, size), and (heads, size, out)."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.g = (rows.parameter(8, 2, 4) for _ in range(4))
        self.g_bias, self.o, self.o_bias = rows.parameter(2, 4), rows.parameter(2, 4, 8), rows.parameter(8)

    def forward(self, x: Any) -> Any:
        q, k, v, g = (x @ weight.reshape(8, 8) for weight in (self.q, self.k, self.v, self.g))
        found = F.attention(q, k, v, 2) * F.sigmoid(g.reshape(*g.shape[:-1], 2, 4) + self.g_bias).reshape(*g.shape)
        return found @ self.o.reshape(8, 8) + self.o_bias


class HeadsAsLayers(columns.Layer):
    """The same with layers, the first three packed in one."""

    def __init__(self, packed: bool, fault: str) -> None:
        self.qkv = columns.Dense(8, 24, bias=False) if packed else None
        self.a, self.b, self.c = (None if packed else columns.Dense(8, 8, bias=False) for _ in range(3))
        self.gate, self.out, self.fault = columns.Dense(8, 8), columns.Dense(8, 8), fault

    def forward(self, x: Any) -> Any:
        both = self.qkv(x) if self.qkv else F.concat([self.a(x), self.b(x), self.c(x)])
        q, k, v = (both[..., at : at + 8] for at in (0, 8, 16))
        g = F.sigmoid(self.gate(q if self.fault == "gate" else x))
        return self.out(F.attention(q * (1.01 if self.fault == "scale" else 1.0), k, v, 2) * g)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("fault", ["", "gate", "scale"])
def test_weights_that_keep_heads_apart_are_those_of_layers(packed: bool, fault: str) -> None:
    """A bias of two axes was none: the gate's stood for the last one's. No layer packed weights of three axes."""
    inputs = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    ours, theirs = rows.Sequential(Heads(), Heads()), columns.Stack(*(HeadsAsLayers(packed, fault) for _ in range(2)))
    report = padiff.diff(ours, theirs, inputs)
    assert [one.candidate.path for one in report.sources] == ["0", "1"] * bool(fault), str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference + report.transfer.unmatched_candidate
