"""Make a value once for all blocks that each block makes on the other side: a fault there is one, wherever it shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

RNG = np.random.default_rng(0)
X, BIAS = RNG.standard_normal((2, 5, 4)).astype(np.float32), RNG.standard_normal((5, 5)).astype(np.float32)


class Attention(rows.Module):
    """Attention that hides what is far by itself; the first one makes a bias, and hands it on."""

    def __init__(self, first: bool) -> None:
        self.q, self.k, self.out = rows.Linear(4, 4), rows.Linear(4, 4), rows.Linear(4, 4)
        self.bias = rows.Linear(5, 5) if first else None

    def forward(self, x: Any, bias: Any = None) -> tuple[Any, Any]:
        bias = self.bias(rows.Tensor(BIAS)).reshape(1, 5, 5) if bias is None else bias
        scores = self.q(x) @ self.k(x).transpose(0, 2, 1) + bias
        scores = scores - 4.0 * rows.Tensor(np.tri(5, k=-2, dtype=np.float32))
        return x + self.out(F.softmax(scores) @ x), bias


class Stack(rows.Module):
    def __init__(self) -> None:
        self.layers, self.head = rows.ModuleList(Attention(first=True), Attention(first=False)), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        bias = None
        for layer in self.layers:
            x, bias = layer(x, bias)
        return self.head(x)


class AttentionPort(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.query, self.key, self.proj, self.fault = (
            columns.Dense(4, 4),
            columns.Dense(4, 4),
            columns.Dense(4, 4),
            fault,
        )

    def forward(self, x: Any, bias: Any) -> Any:
        scores = self.query(x) @ self.key(x).transpose(0, 2, 1)
        scores = (F.tanh(scores) if self.fault == "scores" else scores) + bias
        return x + self.proj(F.softmax(scores) @ x)


class StackPort(columns.Layer):
    """The same, which hides in the bias, once."""

    def __init__(self, fault: str) -> None:
        self.bias, self.fault = columns.Dense(5, 5), fault
        self.layers = columns.Layers(AttentionPort(fault), AttentionPort(fault))
        self.head = columns.Dense(4, 3)

    def forward(self, x: Any) -> Any:
        hidden = columns.Tensor(np.tri(5, k=-1 if self.fault == "mask" else -2, dtype=np.float32))
        bias = self.bias(columns.Tensor(BIAS)) - 4.0 * hidden
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(x)


@pytest.mark.parametrize("fault", ["", "mask", "scores"])
def test_what_is_made_once_is_one_source(fault: str) -> None:
    """The second layer, which is matched with the reference's, was a source of its own."""
    report = padiff.diff(Stack(), StackPort(fault), X)
    assert report.aligned is not bool(fault), str(report)
    assert report.aligned or str(report).startswith("not aligned: 1 source"), str(report)
    if fault == "mask":
        lines = {one.candidate.location for one in report.sources}
        assert lines == {f"{__file__}:{StackPort.forward.__code__.co_firstlineno + 2}"}, str(report)
