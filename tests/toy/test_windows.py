"""Cut windows around a module, or inside of it: where there is one window alone, calls inside have the same shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 8, 4)).astype(np.float32)
_SIZE = 4
"""Tokens in a window."""


class Scores(rows.Module):
    """Queries, keys and values of a window, and a table that is added to its queries: zeros at first."""

    def __init__(self) -> None:
        self.query, self.key, self.value = (rows.Linear(4, 4) for _ in range(3))
        self.table = rows.parameter(_SIZE, 4, scale=0.0)

    def forward(self, x: Any) -> Any:
        return F.attention(self.query(x) + self.table, self.key(x), self.value(x), 2)


class Attention(rows.Module):
    def __init__(self) -> None:
        self.self, self.dense = Scores(), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.dense(self.self(x))


class Around(rows.Module):
    """A block whose own code cuts windows."""

    def __init__(self) -> None:
        self.norm, self.attention = rows.LayerNorm(4), Attention()

    def forward(self, x: Any) -> Any:
        windows = self.norm(x).reshape(-1, _SIZE, 4)
        return x + self.attention(windows).reshape(*x.shape)


class Inside(columns.Layer):
    """Attention that cuts windows itself, and uses its layers' weights in functions."""

    def __init__(self, fault: str) -> None:
        self.qkv, self.proj, self.fault = columns.Dense(4, 12), columns.Dense(4, 4), fault
        self.table = columns.weight(_SIZE, 4)
        self.table.data[:] = 0

    def forward(self, x: Any) -> Any:
        y = F.linear(x.reshape(-1, _SIZE, 4), self.qkv.kernel, self.qkv.offset)
        q, k, v = (y[..., 4 * n : 4 * n + 4] for n in range(3))
        q = q if self.fault == "table" else q + self.table
        y = F.attention(q, k, v, 2, 0.5 if self.fault == "scale" else None)
        return F.linear(y, self.proj.kernel, self.proj.offset).reshape(*x.shape)


class Block(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.norm, self.attn = columns.LayerNormalization(4), Inside(fault)

    def forward(self, x: Any) -> Any:
        return x + self.attn(self.norm(x))


class Model(rows.Module):
    """Two blocks of two windows, and two of one."""

    def __init__(self) -> None:
        self.blocks, self.head = rows.ModuleList(*(Around() for _ in range(4))), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        for number, block in enumerate(self.blocks):
            x = block(x if number != 2 else x[:, ::2])
        return self.head(x)


class Port(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.blocks = columns.Layers(*(Block(fault if number == 3 else "") for number in range(4)))
        self.head = columns.Dense(4, 3)

    def forward(self, x: Any) -> Any:
        for number, block in enumerate(self.blocks):
            x = block(x if number != 2 else x[:, ::2])
        return self.head(x)


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("turned", [False, True], ids=["around", "inside"])
def test_attention_in_windows_is_aligned(turned: bool, phase: str) -> None:
    """Most blocks said that the scores are all of the attention, where no shapes told: right ports were a source."""
    sides = Model(), Port()
    report = padiff.diff(*(sides[::-1] if turned else sides), X, phase=phase)
    assert report.aligned, str(report)
    pairs = [(call.reference, call.candidate) for call in report.calls if call.reference and call.candidate]
    paths = {(ours.path, theirs.path)[:: -1 if turned else 1] for ours, theirs in pairs}
    assert ("blocks.3.attention", "blocks.3.attn") in paths, paths


@pytest.mark.parametrize("fault", ["scale", "table"])
@pytest.mark.parametrize("turned", [False, True], ids=["around", "inside"])
def test_a_fault_in_the_last_window_is_placed_there(turned: bool, fault: str) -> None:
    sides = Model(), Port(fault)
    report = padiff.diff(*(sides[::-1] if turned else sides), X)
    place = [(one.reference if turned else one.candidate).path for one in report.sources]
    assert place in (["blocks.3.attn"], ["blocks.3"]), str(report)
