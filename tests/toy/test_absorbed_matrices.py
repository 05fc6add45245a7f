"""Matrices of a module that take each another value: what one layer packs, or several layers, on the other side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

HEADS, SIZE, WIDE, RANK = 2, 3, 6, 5
X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)


def _heads(x: Any, size: int) -> Any:
    return x.reshape(2, 5, HEADS, size).transpose(0, 2, 1, 3)


class Latent(rows.Module):
    """Attention whose keys and values one layer makes of a few features, head by head."""

    def __init__(self) -> None:
        self.query, self.down = rows.Linear(8, HEADS * SIZE, bias=False), rows.Linear(8, RANK, bias=False)
        self.up, self.last = rows.Linear(RANK, HEADS * (SIZE + WIDE), bias=False), rows.Linear(HEADS * WIDE, 8)

    def forward(self, x: Any) -> Any:
        both = _heads(self.up(self.down(x)), SIZE + WIDE)
        shares = F.softmax(_heads(self.query(x), SIZE) @ both[..., :SIZE].transpose(0, 1, 3, 2))
        return x + self.last((shares @ both[..., SIZE:]).transpose(0, 2, 1, 3).reshape(2, 5, HEADS * WIDE))


class Absorbed(columns.Layer):
    """The same on these features: keys are a matrix on the queries, values one on what is found."""

    def __init__(self, fault: str) -> None:
        self.asked, self.few = columns.weight(8, HEADS * SIZE, scale=0.5), columns.weight(8, RANK, scale=0.5)
        self.keys = columns.weight(HEADS, RANK, SIZE, scale=0.5)
        self.values = columns.weight(HEADS, RANK, WIDE, scale=0.5)
        self.result, self.fault = columns.Dense(HEADS * WIDE, 8), fault

    def forward(self, x: Any) -> Any:
        few = (x @ self.few).reshape(2, 1, 5, RANK)
        asked = _heads(x @ self.asked, SIZE) @ self.keys.transpose(0, 2, 1)
        scores = asked @ few.transpose(0, 1, 3, 2)
        found = F.softmax(scores * 1.1 if self.fault else scores) @ few @ self.values
        return x + self.result(found.transpose(0, 2, 1, 3).reshape(2, 5, HEADS * WIDE))


@pytest.mark.parametrize("fault", ["", "scale"])
def test_matrices_on_both_sides_of_an_attention_are_what_one_layer_packs(fault: str) -> None:
    """Each takes another value than the layer does, and they had no counterpart."""
    report = padiff.diff(rows.Sequential(Latent(), Latent()), columns.Stack(Absorbed(""), Absorbed(fault)), X)
    assert report.transfer is not None
    assert report.transfer.unmatched_reference == report.transfer.unmatched_candidate == (), str(report)
    assert report.aligned is (not fault), str(report)
    assert ["mul(_, 1.1) in the candidate only"] * bool(fault) == [str(one.cause) for one in report.sources]


class Mixed(rows.Module):
    """Layers of one size, each on another mix of a value and the one before; a further layer may take two of them."""

    def __init__(self, further: bool) -> None:
        self.first, self.second, self.third = (rows.parameter(8, scale=0.5) for _ in range(3))
        self.gate, self.key, self.value = (rows.Linear(8, 8, bias=False) for _ in range(3))
        self.further = rows.Linear(8, 8) if further else None

    def forward(self, x: Any) -> Any:
        before = x[:, [0, 0, 1, 2, 3]] - x
        r, k, v = (x + before * one for one in (self.first, self.second, self.third))
        found = F.tanh(self.key(k)) * self.value(v)
        return x + F.sigmoid(self.gate(r)) * (self.further(found) if self.further else found)


class MixedAtOnce(columns.Layer):
    """The same with all matrices in one stack, and all mixes in another."""

    def __init__(self, further: bool, fault: str = "") -> None:
        self.mixes, self.matrices = columns.weight(3, 8, scale=0.5), columns.weight(3, 8, 8, scale=0.5)
        self.last, self.fault = columns.Dense(8, 8) if further else None, fault

    def forward(self, x: Any) -> Any:
        before = x[:, [0, 0, 1, 2, 3]] - x
        gate, key, value = ((x + before * self.mixes[place]) @ self.matrices[place] for place in range(3))
        found = (key if self.fault else F.tanh(key)) * value
        return x + F.sigmoid(gate) * (self.last(found) if self.last else found)


@pytest.mark.parametrize("further", [False, True], ids=["one sum", "two"])
@pytest.mark.parametrize("fault", ["", "tanh"])
def test_layers_that_take_several_values_are_what_a_stack_holds(fault: str, further: bool) -> None:
    """Only layers that take the same, or give to the same, were: these had no counterpart."""
    ours = rows.Sequential(Mixed(further), Mixed(further))
    report = padiff.diff(ours, columns.Stack(MixedAtOnce(further), MixedAtOnce(further, fault)), X)
    assert report.transfer is not None
    assert report.transfer.unmatched_reference == report.transfer.unmatched_candidate == (), str(report)
    assert report.aligned is (not fault), str(report)
    assert ["tanh(_) in the reference only"] * bool(fault) == [str(one.cause) for one in report.sources]
