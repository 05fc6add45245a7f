"""Match a block's layers within the counterpart of the block, where a fault leads the dataflow astray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
ROWS = (rows.Module, rows.Linear, rows.LayerNorm, rows.ModuleList)
COLUMNS = (columns.Layer, columns.Dense, columns.LayerNormalization, columns.Layers)


def made(base: type, children: dict[str, Any], forward: Any) -> Any:
    model = type("Made", (base,), {"forward": forward})()
    vars(model).update(children)
    return model


def attention(kit: Any, *names: str) -> Any:
    def forward(self: Any, x: Any) -> Any:
        q, k, v, out = (getattr(self, name) for name in names)
        return out(F.attention(q(x), k(x), v(x), 2))

    return made(kit[0], {name: kit[1](8, 8) for name in names}, forward)


def block(kit: Any, pre: bool, named: bool) -> Any:
    """Return a block whose norms stand before its parts, or behind them."""
    names = ("q_proj", "k_proj", "v_proj", "out_proj") if named else ("query", "key", "value", "out")
    n1, n2 = ("norm1", "norm2") if named else ("ln_1", "ln_2")

    def forward(self: Any, x: Any) -> Any:
        first, second = getattr(self, n1), getattr(self, n2)
        wide, narrow = self.mlp
        mlp = lambda x: narrow(F.gelu(wide(x)))  # noqa: E731
        if pre:
            x = x + self.attn(first(x))
            return x + mlp(second(x))
        x = first(x + self.attn(x))
        return second(x + mlp(x))

    layers = {"attn": attention(kit, *names), "mlp": kit[3](kit[1](8, 16), kit[1](16, 8))}
    return made(kit[0], {**layers, n1: kit[2](8), n2: kit[2](8)}, forward)


def encoder(kit: Any, named: bool, *pre: bool) -> Any:
    """Return a model with a norm behind its blocks, which one side defines first and the other last."""

    def forward(self: Any, x: Any) -> Any:
        x = self.embedding(x)
        for one in self.blocks:
            x = one(x)
        return self.head(self.final_norm(x))

    final = {"final_norm": kit[2](8)}
    rest = {
        "blocks": kit[3](*[block(kit, one, named) for one in pre]),
        "embedding": kit[1](8, 8),
        "head": kit[1](8, 5),
    }
    return made(kit[0], {**rest, **final} if named else {**final, **rest}, forward)


@pytest.mark.parametrize(
    ("ours", "theirs", "place"), [((True, True), (True, False), 1), ((True, True), (False, True), 0)]
)
def test_norms_of_a_block_that_stand_elsewhere_are_named_in_the_block_alone(
    ours: tuple[bool, ...], theirs: tuple[bool, ...], place: int
) -> None:
    report = padiff.diff(encoder(ROWS, True, *ours), encoder(COLUMNS, False, *theirs), X)
    assert {source.candidate.path for source in report.sources} == {f"blocks.{place}"}, str(report)


class Smoothed(rows.Module):
    """A part without parameters."""

    def forward(self, x: Any) -> Any:
        return F.tanh(x) + x * x


class SmoothedBlock(rows.Module):
    def __init__(self) -> None:
        self.a, self.up, self.down = rows.Linear(4, 4), rows.Linear(4, 8), rows.Linear(8, 4)
        self.smooth = Smoothed()

    def forward(self, x: Any) -> Any:
        x = self.smooth(x + self.a(x))
        return x + self.down(F.tanh(self.up(x)))


class Wide(columns.Layer):
    def __init__(self) -> None:
        self.down, self.up = columns.Dense(8, 4), columns.Dense(4, 8)

    def forward(self, x: Any) -> Any:
        return self.down(F.tanh(self.up(x)))


class SmoothedByCode(columns.Layer):
    def __init__(self) -> None:
        self.wide, self.a = Wide(), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        x = x + self.a(x)
        x = F.tanh(x) + x * x * 1.1
        return x + self.wide(x)


def test_what_holds_layers_is_not_matched_with_what_holds_none() -> None:
    """A part that smooths values was matched with a block of two layers: of one fault came four sources."""
    report = padiff.diff(SmoothedBlock(), SmoothedByCode(), (X[0, :, :4],))
    assert [(one.candidate.path, one.between) for one in report.sources] == [("", ("a", "wide.up"))], str(report)
