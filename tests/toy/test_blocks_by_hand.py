"""Blocks whose parameters all lie in the model itself, packed: a fault in one leaves each where it belongs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import functional as F
from padiff.testing.toy import rows

X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
BLOCKS = range(3)


def scaled(x: Any, weight: Any) -> Any:
    """Return a norm's output: what it is given, by its mean square, times its weight."""
    return x / ((x * x).mean(-1, keepdims=True) + 0.1) * weight


class Norm(rows.Module):
    def __init__(self) -> None:
        self.w = rows.parameter(8)

    def forward(self, x: Any) -> Any:
        return scaled(x, self.w)


class Attention(rows.Module):
    def __init__(self) -> None:
        self.q, self.k, self.v, self.o = (rows.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))


class Block(rows.Module):
    def __init__(self) -> None:
        self.n1, self.attention, self.n2 = Norm(), Attention(), Norm()
        self.gate, self.up, self.down = (rows.Linear(*one, bias=False) for one in ((8, 12), (8, 12), (12, 8)))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.n1(x))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(rows.Module):
    def __init__(self) -> None:
        self.blocks, self.norm = rows.ModuleList(*(Block() for _ in BLOCKS)), Norm()

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Flat(rows.Module):
    """The same as one module; the second block's attention may have no ``residual`` connection."""

    def __init__(self, *, residual: bool) -> None:
        self.residual = residual
        shapes = {"attn_norm": (8,), "qkv": (8, 24), "o": (8, 8), "mlp_norm": (8,), "gate_up": (8, 24), "down": (12, 8)}
        for number in BLOCKS:
            for name, shape in shapes.items():
                setattr(self, f"l{number}_{name}", rows.parameter(*shape, scale=0.4))
        self.last = rows.parameter(8)

    def forward(self, x: Any) -> Any:
        for number in BLOCKS:
            x = self._block(x, number)
        return scaled(x, self.last)

    def _block(self, x: Any, number: int) -> Any:
        norm, qkv, o, mlp_norm, gate_up, down = (
            getattr(self, f"l{number}_{name}") for name in ("attn_norm", "qkv", "o", "mlp_norm", "gate_up", "down")
        )
        y = scaled(x, norm) @ qkv
        y = F.attention(y[..., :8], y[..., 8:16], y[..., 16:], 2) @ o
        x = x + y if self.residual or number != 1 else y
        y = scaled(x, mlp_norm) @ gate_up
        return x + (F.silu(y[..., :12]) * y[..., 12:]) @ down


@pytest.mark.parametrize("residual", [True, False])
def test_a_residual_that_one_block_lacks_moves_no_parameters_to_others(residual: bool) -> None:
    """A norm right behind a matrix was its bias, and the blocks were each other's."""
    report = padiff.diff(Model(), Flat(residual=residual), (X,))
    assert [str(one.what) for one in report.sources] == ["output"] * (not residual), str(report)
    lines = [line.split() for line in str(report.mapping).splitlines()]
    found = {line[0]: line[1] for line in lines if len(line) > 1}
    norms = (("n1.w", "attn_norm"), ("n2.w", "mlp_norm"))
    named = [(f"blocks.{n}.{ours}", f"l{n}_{theirs}") for n in BLOCKS for ours, theirs in norms]
    assert {ours: found.get(ours) for ours, _ in named} == dict(named), str(report.mapping)
    assert not any(report.mapping.unmatched_parameters.values()), str(report.mapping)
