"""Join parameters where the layers beside them are matched: others of the same shapes lie in other modules."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import padiff
from padiff.parameters import Correspondence, HeldUnit, UnitMatch
from padiff.parameters._homes import homes_of, strays
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F
from padiff.trace import ModuleRecord, ParameterRecord

X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
RANK = 3


class Attend(rows.Module):
    """Mixes what it is given by vectors in one parameter, and by products of small matrices in another."""

    def __init__(self, mixed: int) -> None:
        self.mu, self.scale, self.mus = rows.parameter(4), rows.parameter(4), rows.parameter(mixed, 4)
        self.down, self.up = rows.parameter(4, RANK * mixed), rows.parameter(mixed, RANK, 4)
        self.key, self.value, self.out = (rows.Linear(4, 4) for _ in range(3))
        self.norm, self.mixed = rows.LayerNorm(4), mixed

    def forward(self, x: Any) -> Any:
        y = x * self.mu
        low = F.tanh((x + y) @ self.down).reshape(2, 5, self.mixed, RANK)
        k, v, *more = (y * (self.mus[i] + low[:, :, i] @ self.up[i]) for i in range(self.mixed))
        z = F.tanh(self.key(x + k)) * self.value(x + v) * self.scale
        return self.out(self.norm(sum(more, start=z)))


class Mix(rows.Module):
    """Holds its two vectors apart."""

    def __init__(self) -> None:
        self.mk, self.mr = rows.parameter(4), rows.parameter(4)
        self.key, self.gate = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = F.tanh(x)
        return F.sigmoid(self.gate(x + y * self.mr)) * self.key(x + y * self.mk)


class Block(rows.Module):
    """Both, one behind the other."""

    def __init__(self, mixed: int) -> None:
        self.att, self.ffn = Attend(mixed), Mix()

    def forward(self, x: Any) -> Any:
        x = x + self.att(x)
        return x + self.ffn(x)


class AttendPort(columns.Layer):
    """Holds vectors and small matrices apart, and those of its norm."""

    def __init__(self, mixed: int, fault: str) -> None:
        self.first, self.scale = columns.weight(4), columns.weight(4)
        self.low, self.mixed, self.fault = columns.Dense(4, RANK * mixed, bias=False), mixed, fault
        for i in range(mixed):
            setattr(self, f"by_{i}", columns.weight(4))
            setattr(self, f"high_{i}", columns.weight(RANK, 4))
        self.k, self.v, self.o = (columns.Dense(4, 4) for _ in range(3))
        self.gamma, self.beta = columns.weight(4), columns.weight(4)

    def forward(self, x: Any) -> Any:
        y = x * self.first
        low = F.tanh(self.low(x + y))
        k, v, *more = (
            y * (getattr(self, f"by_{i}") + low[:, :, RANK * i : RANK * (i + 1)] @ getattr(self, f"high_{i}"))
            for i in range(self.mixed)
        )
        if self.fault == "mixed":
            k, v = v, k
        z = sum(more, start=F.tanh(self.k(x + k)) * self.v(x + v) * self.scale)
        z = z - z.mean(-1, True)
        return self.o(z / ((z * z).mean(-1, True) + 1e-5).sqrt() * self.gamma + self.beta)


class MixPort(columns.Layer):
    """Holds its two vectors in one parameter."""

    def __init__(self, fault: str) -> None:
        self.m, self.fault = columns.weight(2, 4), fault
        self.k, self.r = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        y = F.tanh(x)
        k, r = (1, 0) if self.fault == "rows" else (0, 1)
        return self.k(x + y * self.m[k]) * F.sigmoid(self.r(x + y * self.m[r]))


class BlockPort(columns.Layer):
    """Such a block, with a fault or none."""

    def __init__(self, mixed: int, fault: str = "") -> None:
        self.tm, self.cm = AttendPort(mixed, fault), MixPort(fault)

    def forward(self, x: Any) -> Any:
        x = x + self.tm(x)
        return x + self.cm(x)


def _models(mixed: int, count: int, fault: str = "") -> tuple[rows.Module, columns.Layer]:
    blocks = (BlockPort(mixed, fault if i == 1 else "") for i in range(count))
    return rows.Sequential(*(Block(mixed) for _ in range(count))), columns.Stack(*blocks)


@pytest.mark.parametrize("mixed", [2, 3], ids=["as large as the other one", "larger"])
def test_vectors_are_joined_where_the_layers_beside_them_are(mixed: int) -> None:
    """Two of one module are as large as two of the other one, and what joins them is."""
    report = padiff.diff(*_models(mixed, 2), X)
    assert report.aligned, str(report)


@pytest.mark.parametrize(("fault", "place"), [("mixed", "1.tm"), ("rows", "1.cm")])
def test_another_order_in_one_of_these_modules_is_named_there(fault: str, place: str) -> None:
    """Whatever is joined there, the other blocks tell in which order."""
    sources = padiff.diff(*_models(2, 3, fault), X).sources
    assert {source.candidate.path for source in sources if source.candidate} == {place}, str(sources)


def _unit(path: str, kind: str | None = None) -> HeldUnit:
    held = ParameterRecord(f"{path}.w", (f"{path}.w",), "float32", (4,))
    return attrs.evolve(HeldUnit.of_one(ModuleRecord(path, "M"), "w", held), kind=kind)


def test_a_home_holds_the_layers_of_one_module() -> None:
    """A layer of `c` is among those of `x`, so `x` is nobody's home."""
    layers = {"a.fc": "y.k", "a.out": "y.o", "b.fc": "x.k", "c.fc": "x.o", "d.fc": "z.k"}
    sure = [UnitMatch.of(_unit(mine, "linear"), _unit(yours, "linear")) for mine, yours in layers.items()]
    ours, theirs = [_unit(path) for path in "abd"], [_unit(path) for path in "xyz"]
    a, b, d = ours
    x, y, z = theirs
    known = Correspondence(ours, theirs, [*sure, UnitMatch.of(a, y), UnitMatch.of(b, x)])
    homes = homes_of(known)
    assert homes.named == {"a": "y", "d": "z"}
    assert strays(known, homes) == 0, "nothing says where the parameters of `b` and `x` belong"
    assert strays(attrs.evolve(known, matches=[*sure, UnitMatch.of(a, z), UnitMatch.of(d, x)]), homes) == 1
