"""Blocks whose parameters all lie in one module, packed: a fault in one leaves each where it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.parameters._splitting import parts_of
from padiff.parameters._units import HeldUnit
from padiff.testing.toy import functional as F
from padiff.testing.toy import rows
from padiff.trace import Flow, ModuleRecord, ParameterRecord, Source

WORDS = np.random.default_rng(0).integers(0, 11, (2, 5))
BLOCKS = range(3)


def scaled(x: Any, weight: Any) -> Any:
    """Return a norm's output: what it is given, by its mean square, times its weight."""
    return x / ((x * x).mean(-1, keepdims=True) + 0.1) * weight


def attended(q: Any, k: Any, v: Any) -> Any:
    """Return what four heads of queries find among two of keys and values (2 features each)."""
    groups = [F.attention(q[..., 4 * n : 4 * n + 4], *(_both(y, n) for y in (k, v)), 2) for n in (0, 1)]
    return F.concat(groups, -1)


def _both(x: Any, n: int) -> Any:
    return F.concat([x[..., 2 * n : 2 * n + 2]] * 2, -1)


class Norm(rows.Module):
    def __init__(self) -> None:
        self.w = rows.parameter(8)

    def forward(self, x: Any) -> Any:
        return scaled(x, self.w)


class Attention(rows.Module):
    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(8, size, bias=False) for size in (8, 4, 4, 8))

    def forward(self, x: Any) -> Any:
        return self.o(attended(self.q(x), self.k(x), self.v(x)))


class Block(rows.Module):
    def __init__(self) -> None:
        self.n1, self.attention, self.n2 = Norm(), Attention(), Norm()
        self.gate, self.up, self.down = (rows.Linear(*one, bias=False) for one in ((8, 16), (8, 16), (16, 8)))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.n1(x))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(rows.Module):
    """A model of words whose table is its head, too."""

    def __init__(self) -> None:
        self.words, self.blocks, self.norm = rows.Embedding(11, 8), rows.ModuleList(*(Block() for _ in BLOCKS)), Norm()

    def forward(self, words: Any) -> Any:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.words.weight.transpose(1, 0)


class Parameters(rows.Module):
    """What the blocks of a model hold, in a module that is never called."""

    def __init__(self) -> None:
        shapes = {"attn_norm": (8,), "qkv": (8, 16), "o": (8, 8), "mlp_norm": (8,), "gate_up": (8, 32), "down": (16, 8)}
        for number in BLOCKS:
            for name, shape in shapes.items():
                setattr(self, f"l{number}_{name}", rows.parameter(*shape, scale=0.4))
        self.table, self.last = rows.parameter(11, 8), rows.parameter(8)

    def forward(self) -> Any:
        raise NotImplementedError

    def of_block(self, number: int) -> Iterator[Any]:
        """Yield them in the order of their use."""
        return (getattr(self, f"l{number}_{name}") for name in ("attn_norm", "qkv", "o", "mlp_norm", "gate_up", "down"))


class Flat(rows.Module):
    """The same as one module; the second block's attention may have no ``residual`` connection."""

    def __init__(self, *, residual: bool) -> None:
        self.residual, self.p = residual, Parameters()

    def forward(self, words: Any) -> Any:
        x = F.embedding(words, self.p.table)
        for number in BLOCKS:
            x = self._block(x, number)
        return scaled(x, self.p.last) @ self.p.table.transpose(1, 0)

    def _block(self, x: Any, number: int) -> Any:
        norm, qkv, o, mlp_norm, gate_up, down = self.p.of_block(number)
        y = scaled(x, norm) @ qkv
        y = attended(y[..., :8], y[..., 8:12], y[..., 12:]) @ o
        x = x + y if self.residual or number != 1 else y
        y = scaled(x, mlp_norm) @ gate_up
        return x + (F.silu(y[..., :16]) * y[..., 16:]) @ down


@pytest.mark.parametrize("residual", [True, False])
def test_a_residual_that_one_block_lacks_moves_no_parameters_to_others(residual: bool) -> None:
    """A norm right behind a matrix was its bias, and the blocks were each other's."""
    report = padiff.diff(Model(), Flat(residual=residual), (WORDS,))
    assert [str(one.what) for one in report.sources] == ["output"] * (not residual), str(report)
    lines = [line.split() for line in str(report.mapping).splitlines()]
    found = {line[0]: line[1] for line in lines if len(line) > 1}
    norms = (("n1.w", "attn_norm"), ("n2.w", "mlp_norm"))
    named = [(f"blocks.{n}.{ours}", f"p.l{n}_{theirs}") for n in BLOCKS for ours, theirs in norms]
    assert {ours: found.get(ours) for ours, _ in named} == dict(named), str(report.mapping)
    assert not any(report.mapping.unmatched_parameters.values()), str(report.mapping)


class InOrder(frozenset[Source]):
    """Sources that are read in one order, whatever their hashes."""

    def __new__(cls, sources: list[Source]) -> InOrder:
        made = super().__new__(cls, sources)
        made.order = sources
        return made

    order: list[Source]

    def __iter__(self) -> Iterator[Source]:
        return iter(self.order)


@pytest.mark.parametrize("turned", [False, True])
def test_a_vector_that_a_matrix_reaches_on_a_long_way_too_is_no_bias(turned: bool) -> None:
    """As a norm's weight is behind what it scales, and behind the mean square of that."""
    shapes = {"matrix": (8, 8), "vector": (8,)}
    held = {name: HeldUnit.of_one(ModuleRecord("", "M"), name, ParameterRecord(name, (name,), "float32", shape))
            for name, shape in shapes.items()}  # fmt: skip
    unit = HeldUnit(ModuleRecord("", "M"), "", None, {name: one.roles[name] for name, one in held.items()})
    ways = [("matrix", frozenset({"divide"})), ("matrix", frozenset({"multiply", "mean", "add", "divide"}))]
    takes = {"matrix": frozenset({("", frozenset[str]())}), "vector": InOrder(ways[:: -1 if turned else 1])}
    assert [sorted(part.roles) for part in parts_of(unit, Flow(takes))] == [["matrix"], ["vector"]]
