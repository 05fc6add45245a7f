"""Repeated layers pack their projections in one order: another one in one of them is a fault, and no layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)


class Split(rows.Module):
    """Attention with queries, keys and values apart."""

    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(8, 8) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return x + self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))


class Packed(columns.Layer):
    """The same with all three in one layer, in some order."""

    def __init__(self, order: str) -> None:
        self.qkv, self.result, self.order = columns.Dense(8, 24), columns.Dense(8, 8), order

    def forward(self, x: Any) -> Any:
        y = self.qkv(x)
        part = {name: y[..., 8 * i : 8 * i + 8] for i, name in enumerate(self.order)}
        return x + self.result(F.attention(part["q"], part["k"], part["v"], 2))


def packed(orders: Sequence[str]) -> Any:
    return columns.Stack(*(Packed(order) for order in orders))


@pytest.mark.parametrize("order", ["qkv", "kqv", "vqk"])
def test_one_order_in_all_layers_is_a_layout(order: str) -> None:
    report = padiff.diff(rows.Sequential(Split(), Split(), Split()), packed([order] * 3), TOKENS)
    assert report.aligned, str(report)


@pytest.mark.parametrize("orders", [("qkv", "kqv", "qkv"), ("kqv", "kqv", "qkv"), ("kqv", "qkv")])
def test_another_order_in_one_layer_is_named_there(orders: Sequence[str]) -> None:
    """A checkpoint is converted in one way: 0.4 took the order that made each layer right, and both were aligned."""
    report = padiff.diff(rows.Sequential(*(Split() for _ in orders)), packed(orders), TOKENS)
    (source,) = report.sources
    usual = max(("qkv", "kqv"), key=orders.count)
    assert source.candidate.path == str(next(i for i, order in enumerate(orders) if order != usual)), str(report)
