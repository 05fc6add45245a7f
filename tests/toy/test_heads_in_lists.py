"""Attention whose heads have layers of their own, in a list, against layers that pack those of all heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

HEADS, SIZE = 5, 2
WIDTH = HEADS * SIZE
X = np.random.default_rng(0).standard_normal((2, 3, WIDTH)).astype(np.float32)


def attention(query: Any, key: Any, value: Any) -> Any:
    return F.softmax(query @ key.transpose(0, 2, 1)) @ value


class Head(rows.Module):
    def __init__(self, fault: str) -> None:
        self.key, self.query, self.value = (rows.Linear(WIDTH, SIZE, bias=False) for _ in range(3))
        self.fault = fault

    def forward(self, x: Any) -> Any:
        key, query, value = self.key(x), self.query(x), self.value(x)
        return attention(query * (2.0 if self.fault == "scale" else 1.0), key, value)


class Heads(rows.Module):
    def __init__(self, fault: str = "") -> None:
        self.heads = rows.ModuleList(*(Head(fault if number == 3 else "") for number in range(HEADS)))
        self.out = rows.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.out(F.concat([head(x) for head in self.heads]))


class Packed(columns.Layer):
    """The same with one layer for queries, keys and values, head by head or not, or with three."""

    def __init__(self, layers: int = 1, by_head: bool = False) -> None:
        self.layers = [columns.Dense(WIDTH, 3 * WIDTH // layers, bias=False) for _ in range(layers)]
        for number, layer in enumerate(self.layers):
            setattr(self, f"part{number}", layer)
        self.mix, self.by_head = columns.Dense(WIDTH, WIDTH), by_head

    def forward(self, x: Any) -> Any:
        given = F.concat([layer(x) for layer in self.layers])
        step, width = (3 * SIZE, SIZE) if self.by_head else (SIZE, WIDTH)
        found = []
        for head in range(HEADS):
            at = head * step
            found.append(attention(*(given[..., at + i * width : at + i * width + SIZE] for i in range(3))))
        return self.mix(F.concat(found))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("layers", "by_head"), [(1, False), (1, True), (3, False)])
def test_heads_in_a_list_are_one_packed_layers(layers: int, by_head: bool, turned: bool) -> None:
    """Of fifteen layers every order was asked for, and memory ran out; of six the right one came too late."""
    sides = Heads(), Packed(layers, by_head)
    report = padiff.diff(*sides[:: -1 if turned else 1], X)
    assert report.aligned, str(report)


def test_a_fault_in_one_head_is_found() -> None:
    report = padiff.diff(Packed(), Heads("scale"), X)
    assert not report.aligned
    (source,) = report.sources
    assert source.candidate.path in ("", "heads.3"), str(report)
