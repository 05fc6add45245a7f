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


def modulated(base: Any, linear: Any, *, packed: bool, fault: float = 1.0) -> Any:
    """A block whose scales, shifts and gates one layer makes of a condition, or six, scales before shifts."""
    names = "shift", "scale", "gate", "late_shift", "late_scale", "late_gate"

    class Block(base):
        def __init__(self) -> None:
            self.one, self.two = linear(4, 4), linear(4, 4)
            if packed:
                self.all = linear(4, 24)
            else:
                for name in names:
                    setattr(self, name, linear(4, 4))

        def forward(self, x: Any, c: Any) -> Any:
            whole = self.all(c) if packed else None
            order = names if packed else ("scale", "shift", "gate", "late_scale", "late_shift", "late_gate")
            parts = {
                name: whole[:, 4 * i : 4 * i + 4] if packed else getattr(self, name)(c) for i, name in enumerate(order)
            }
            x = x + parts["gate"] * F.tanh(self.one(x * parts["scale"] + parts["shift"]))
            return x + parts["late_gate"] * F.tanh(self.two(x * parts["late_scale"] * fault + parts["late_shift"]))

    class Net(base):
        def __init__(self) -> None:
            self.first, self.block, self.last = linear(4, 4), Block(), linear(4, 3)

        def forward(self, x: Any, c: Any) -> Any:
            return self.last(self.block(self.first(x), c))

    return Net()


@pytest.mark.parametrize("fault", [1.0, 1.1])
def test_of_many_orders_the_right_one_is_found_by_exchanges(fault: float) -> None:
    """The first 64 of 720 orders were tried, and both blocks of a right DiT were a source."""
    ours = modulated(rows.Module, rows.Linear, packed=True)
    theirs = modulated(columns.Layer, columns.Dense, packed=False, fault=fault)
    report = padiff.diff(ours, theirs, (X[0, :, :4], X[1, :, :4]))
    places = [(one.candidate.path, one.what.taker) for one in report.sources]
    assert places == [("block", "two")] * (fault != 1), str(report)
