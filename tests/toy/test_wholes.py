"""Layers that take the same are one whole, packed or not: what stands around them is matched all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.parameters import HeldUnit
from padiff.parameters._wholes import _by_module
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import ModuleRecord, ParameterRecord

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)


class Heads(rows.Module):
    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))


class Gate(rows.Module):
    def __init__(self) -> None:
        self.gate, self.up, self.down = (rows.Linear(*size, bias=False) for size in ((8, 12), (8, 12), (12, 8)))

    def forward(self, x: Any) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Parallel(rows.Module):
    """A block whose two branches take one norm's output, each with projections of its own."""

    def __init__(self) -> None:
        self.norm, self.heads, self.mlp = rows.LayerNorm(8), Heads(), Gate()

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        return x + self.heads(y) + self.mlp(y)


class Fused(columns.Layer):
    """The same with all that takes the norm's output in one."""

    def __init__(self, fault: str) -> None:
        self.into, self.fault = columns.Dense(8, 48, bias=False), fault
        self.down, self.o = columns.Dense(12, 8, bias=False), columns.Dense(8, 8, bias=False)
        self.ln = columns.LayerNormalization(8)

    def forward(self, x: Any) -> Any:
        y = self.into(self.ln(x))
        q, k, v, gate, up = (y[..., a:b] for a, b in ((0, 8), (8, 16), (16, 24), (24, 36), (36, 48)))
        mixed = F.attention(q, k, v, 2, 0.4 if self.fault == "scale" else None)
        return x + self.o(mixed) + self.down((F.gelu if self.fault == "gelu" else F.silu)(gate) * up)


class Residual(rows.Module):
    """A gated residual block: every matrix but the packed one is square."""

    def __init__(self, context: bool = False) -> None:
        self.first, self.second, self.both = rows.Linear(8, 8), rows.Linear(8, 8), rows.Linear(8, 16)
        self.norm, self.context = rows.LayerNorm(8), rows.Linear(8, 8, bias=False) if context else None

    def forward(self, x: Any, context: Any = None) -> Any:
        y = self.first(x) if self.context is None else self.first(x) + self.context(context)
        y = self.both(self.second(F.tanh(y)))
        return self.norm(x + y[..., :8] * F.sigmoid(y[..., 8:]))


class Gated(rows.Module):
    def __init__(self) -> None:
        self.context, self.query, self.value = Residual(), Residual(), Residual()
        self.enriched, self.last, self.out = Residual(context=True), Residual(), rows.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        told = self.context(x[:, :1])
        mixed = F.softmax(self.query(x) @ self.value(x).transpose(0, 2, 1), -1) @ x
        return self.out(self.last(self.enriched(mixed, told)))


class Halves(columns.Layer):
    def __init__(self, context: bool = False, fault: str = "") -> None:
        self.ln, self.sigma, self.linear = columns.LayerNormalization(8), columns.Dense(8, 8), columns.Dense(8, 8)
        self.b, self.a, self.fault = columns.Dense(8, 8), columns.Dense(8, 8), fault
        self.c = columns.Dense(8, 8, bias=False) if context else None

    def forward(self, x: Any, context: Any = None) -> Any:
        y = self.a(x) if self.c is None else self.a(x) + self.c(context)
        y = self.b(F.relu(y) if self.fault == "relu" else F.tanh(y))
        y = self.linear(y) * F.sigmoid(self.sigma(y))
        return self.ln(y if self.fault == "residual" else x + y)


class GatedPort(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.head, self.end, self.rich = columns.Dense(8, 3), Halves(fault=fault), Halves(context=True)
        self.keys, self.queries, self.static = Halves(), Halves(), Halves()

    def forward(self, x: Any) -> Any:
        told = self.static(x[:, :1])
        mixed = F.softmax(self.queries(x) @ self.keys(x).transpose(0, 2, 1), -1) @ x
        return self.head(self.end(self.rich(mixed, told)))


class Looking(rows.Module):
    """Queries of a norm, keys and values of what it is given; each block's matrices are all square."""

    def __init__(self) -> None:
        self.norm, self.seen, self.ff = rows.LayerNorm(8), Memory(8, 2), rows.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        y = y + self.seen(y, x)
        return y + self.ff(F.relu(y))


class Memory(rows.Attention):
    def forward(self, x: Any, memory: Any = None) -> Any:
        def mapped(y: Any, i: int) -> Any:
            weight, bias = self.packed[8 * i : 8 * i + 8], self.packed_bias[8 * i : 8 * i + 8]
            return F.linear(y, weight.transpose(1, 0), bias)

        mixed = F.attention(mapped(x, 0), mapped(memory, 1), mapped(memory, 2), self.heads)
        return F.linear(mixed, self.out.weight.transpose(1, 0), self.out.bias)


class LookingPort(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.feed, self.kv, self.fault = columns.Dense(8, 8), columns.Dense(8, 16), fault
        self.result, self.query, self.ln = columns.Dense(8, 8), columns.Dense(8, 8), columns.LayerNormalization(8)

    def forward(self, x: Any) -> Any:
        y = self.ln(x)
        kv = self.kv(y if self.fault == "normed" else x)
        y = y + self.result(F.attention(self.query(y), kv[..., :8], kv[..., 8:], 2))
        return y + self.feed(F.relu(y))


def fused(fault: str) -> Any:
    return columns.Stack(Fused(""), Fused(fault))


def looking(fault: str) -> Any:
    return columns.Stack(LookingPort(), LookingPort(fault))


@pytest.mark.parametrize(
    ("ours", "theirs", "faults"),
    [
        (lambda: rows.Sequential(Parallel(), Parallel()), fused, {"scale": "1", "gelu": "1"}),
        (Gated, GatedPort, {"relu": "end", "residual": "end"}),
        (lambda: rows.Sequential(Looking(), Looking()), looking, {"normed": "1"}),
    ],
)
def test_packed_layers_amid_others_of_their_shape(ours: Any, theirs: Any, faults: dict[str, str]) -> None:
    """Cohere's block in one projection, a Temporal Fusion Transformer's gates, and SASRec's keys and values."""
    report = padiff.diff(ours(), theirs(""), TOKENS)
    assert report.aligned, str(report)
    for fault, place in faults.items():
        report = padiff.diff(ours(), theirs(fault), TOKENS)
        assert {source.candidate.path for source in report.sources} == {place}, str(report)


def layer(path: str, rows_of: int) -> HeldUnit:
    held = ParameterRecord(f"{path}.weight", (f"{path}.weight",), "float32", (rows_of, 4))
    return HeldUnit.of_one(ModuleRecord(path, "Linear"), "weight", held)


def test_layers_that_take_the_same_belong_together_module_by_module() -> None:
    """What two blocks and a head make of one condition was one packing, whose order the first block told for all."""
    ours = layer("0.said", 8), layer("1.said", 8), layer("end.said", 4)
    theirs = tuple(layer(f"{block}.{i}", 4) for block in ("low", "up") for i in range(2))
    parts = layer("scale", 2), layer("shift", 2)
    found = [(len(few), [one.path for one in many]) for few, many in _by_module(ours, (*theirs, *parts))]
    assert found == [(1, ["low.0", "low.1"]), (1, ["up.0", "up.1"]), (1, ["scale", "shift"])]
    bare = HeldUnit.of_one(ModuleRecord("m", "M"), "scale", ParameterRecord("m.scale", ("m.scale",), "float32", (4,)))
    assert list(_by_module((bare,), theirs[:1])) == [((bare,), theirs[:1])]  # no layer, and no whole
    assert list(_by_module(ours[:2], (*theirs[:1], *parts, *theirs[2:]))) == [
        (ours[:2], (*theirs[:1], *parts, *theirs[2:]))
    ]  # as wide as each other only together
