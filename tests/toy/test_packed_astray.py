"""Layers that pack others beside layers of their own shape, to which nothing in the dataflow leads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X, Y = np.random.default_rng(0).standard_normal((2, 2, 3, 4)).astype(np.float32)


class Attention(rows.Module):
    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(4, 4, bias=False) for _ in range(4))

    def forward(self, x: Any, memory: Any) -> Any:
        return self.o(F.attention(self.q(x), self.k(memory), self.v(memory), 2))


class Gated(rows.Module):
    """A gated layer of which each half is as wide as keys and values together."""

    def __init__(self) -> None:
        self.gate, self.up = (rows.Linear(4, 8, bias=False) for _ in range(2))
        self.down = rows.Linear(8, 4, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.gate(x)) * self.up(x))


class Encoder(rows.Module):
    def __init__(self) -> None:
        self.attention, self.gated = Attention(), Gated()
        self.before, self.behind = rows.LayerNorm(4), rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        y = self.before(x)
        x = x + self.attention(y, y)
        return x + self.gated(self.behind(x))


class Decoder(rows.Module):
    def __init__(self) -> None:
        self.attention, self.cross, self.gated = Attention(), Attention(), Gated()
        self.n1, self.n2, self.n3 = (rows.LayerNorm(4) for _ in range(3))

    def forward(self, x: Any, memory: Any) -> Any:
        y = self.n1(x)
        x = x + self.attention(y, y)
        x = x + self.cross(self.n2(x), memory)
        return x + self.gated(self.n3(x))


class Translator(rows.Module):
    def __init__(self) -> None:
        self.encoder = rows.ModuleList(Encoder(), Encoder())
        self.decoder = rows.ModuleList(Decoder(), Decoder())

    def forward(self, x: Any, y: Any) -> Any:
        for layer in self.encoder:
            x = layer(x)
        for layer in self.decoder:
            y = layer(y, x)
        return y


class PackedAttention(columns.Layer):
    """The same with keys and values in one layer."""

    def __init__(self) -> None:
        self.query, self.both, self.result = (columns.Dense(4, n, bias=False) for n in (4, 8, 4))

    def forward(self, x: Any, memory: Any) -> Any:
        both = self.both(memory)
        return self.result(F.attention(self.query(x), both[..., :4], both[..., 4:], 2))


class PackedGated(columns.Layer):
    """The same with both halves in one layer."""

    def __init__(self, slope: float) -> None:
        self.halves, self.last, self.slope = columns.Dense(4, 16, bias=False), columns.Dense(8, 4, bias=False), slope

    def forward(self, x: Any) -> Any:
        halves = self.halves(x)
        return self.last(F.gelu(halves[..., :8]) * halves[..., 8:] * self.slope)


class PackedEncoder(columns.Layer):
    def __init__(self) -> None:
        self.own, self.wide = PackedAttention(), PackedGated(1.0)
        self.n1, self.n2 = columns.LayerNormalization(4), columns.LayerNormalization(4)

    def forward(self, x: Any) -> Any:
        y = self.n1(x)
        x = x + self.own(y, y)
        return x + self.wide(self.n2(x))


class PackedDecoder(columns.Layer):
    def __init__(self, slope: float) -> None:
        self.own, self.other, self.wide = PackedAttention(), PackedAttention(), PackedGated(slope)
        self.n1, self.n2, self.n3 = (columns.LayerNormalization(4) for _ in range(3))

    def forward(self, x: Any, memory: Any) -> Any:
        y = self.n1(x)
        x = x + self.own(y, y)
        x = x + self.other(self.n2(x), memory)
        return x + self.wide(self.n3(x))


class PackedTranslator(columns.Layer):
    def __init__(self, slope: float) -> None:
        self.into = columns.Layers(PackedEncoder(), PackedEncoder())
        self.out = columns.Layers(PackedDecoder(1.0), PackedDecoder(slope))

    def forward(self, x: Any, y: Any) -> Any:
        for layer in self.into:
            x = layer(x)
        for layer in self.out:
            y = layer(y, x)
        return y


@pytest.mark.parametrize("turned", [False, True], ids=["packed", "unpacked"])
@pytest.mark.parametrize("slope", [1.0, 1.1])
def test_keys_with_values_may_look_like_half_of_a_gated_layer(slope: float, turned: bool) -> None:
    """T5's: the halves were taken for the layers of that shape, behind another norm, and keys and values left over."""
    ours, theirs = Translator(), PackedTranslator(slope)
    report = padiff.diff(theirs, ours, (X, Y)) if turned else padiff.diff(ours, theirs, (X, Y))
    at = "decoder.1.gated" if turned else "out.1.wide"
    assert [one.candidate.path for one in report.sources] == [at] * (slope != 1), str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference


class Cell(rows.Module):
    """Four gates, each in a layer of its own, in front of a gated layer with both halves in one."""

    def __init__(self) -> None:
        self.i, self.f, self.z, self.o = (rows.Linear(4, 4) for _ in range(4))
        self.before, self.behind = rows.LayerNorm(4), rows.LayerNorm(4)
        self.wide, self.down = rows.Linear(4, 16), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        y = self.before(x)
        kept = F.sigmoid(self.f(y)) * y + F.sigmoid(self.i(y)) * F.tanh(self.z(y))
        x = x + F.sigmoid(self.o(y)) * kept
        halves = self.wide(self.behind(x))
        return x + self.down(F.gelu(halves[..., :8]) * halves[..., 8:])


class PackedCell(columns.Layer):
    """The same with all gates in one layer, and the halves apart: that is as large as the other side's halves."""

    def __init__(self, slope: float, *, crossed: bool) -> None:
        self.gates, self.gate, self.value = columns.Dense(4, 16), columns.Dense(4, 8), columns.Dense(4, 8)
        self.n1, self.n2, self.last = columns.LayerNormalization(4), columns.LayerNormalization(4), columns.Dense(8, 4)
        self.slope, self.crossed = slope, crossed

    def forward(self, x: Any) -> Any:
        y = self.n1(x)
        i, f, z, o = (self.gates(y)[..., n : n + 4] for n in (0, 4, 8, 12))
        kept = F.sigmoid(f) * y + F.sigmoid(i) * F.tanh(z)
        x = x + F.sigmoid(o) * kept * self.slope
        y = self.n2(x)
        return x + self.last(F.gelu(self.gate(y)) * (self.gate(y) if self.crossed else self.value(y)))


@pytest.mark.parametrize("turned", [False, True], ids=["packed", "unpacked"])
@pytest.mark.parametrize(("slope", "crossed"), [(1.0, False), (1.1, False), (1.0, True)])
def test_packed_gates_may_be_as_large_as_both_halves(slope: float, crossed: bool, turned: bool) -> None:
    """Nothing was left over where these were taken for each other, though the dataflow of both was another one."""
    ours, theirs = Cell(), PackedCell(slope, crossed=crossed)
    report = padiff.diff(theirs, ours, (X[0],)) if turned else padiff.diff(ours, theirs, (X[0],))
    assert report.aligned is (slope == 1.0 and not crossed), str(report)
    assert len(report.sources) == (not report.aligned), str(report)
