"""Plant one fault in code that several blocks share: each of them is a place of it."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)


class Sampling(rows.Module):
    """A block: a layer, a norm and an activation, and each two points added up."""

    def __init__(self) -> None:
        self.linear, self.norm = rows.Linear(4, 4), rows.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x = F.silu(self.norm(self.linear(x)))
        return x[:, 1:] + x[:, :-1]


class Points(rows.Module):
    """Blocks, and the same without sampling before a head."""

    def __init__(self) -> None:
        self.blocks = rows.ModuleList(Sampling(), Sampling())
        self.linear, self.norm, self.head = rows.Linear(4, 4), rows.LayerNorm(4), rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(F.silu(self.norm(self.linear(x))))


class Shared(columns.Layer):
    """What all of them do, point by point; or with the norm behind the activation."""

    def __init__(self, behind: bool) -> None:
        self.norm, self.layer, self.behind = columns.LayerNormalization(4), columns.Dense(4, 4), behind

    def forward(self, x: Any) -> Any:
        y = self.layer(x.reshape(-1, 4))
        y = self.norm(F.silu(y)) if self.behind else F.silu(self.norm(y))
        return y.reshape(*x.shape)


class Down(columns.Layer):
    def __init__(self, behind: bool) -> None:
        self.net = Shared(behind)

    def forward(self, x: Any) -> Any:
        x = self.net(x)
        return x[:, 1:] + x[:, :-1]


class Cloud(columns.Layer):
    def __init__(self, behind: bool) -> None:
        self.head, self.down = columns.Dense(4, 2), columns.Layers(Down(behind), Down(behind))
        self.pre = Shared(behind)

    def forward(self, x: Any) -> Any:
        for down in self.down:
            x = down(x)
        return self.head(self.pre(x))


def test_a_fault_in_shared_code_is_placed_in_each_block() -> None:
    """A PointNet's: that the last place is wrong either way was taken for a sign that the blocks end elsewhere."""
    report = padiff.diff(Points(), Cloud(behind=False), (X,))
    assert report.aligned, str(report)
    report = padiff.diff(Points(), Cloud(behind=True), (X,))
    assert {source.candidate.path for source in report.sources} == {"down.0", "down.1", "pre"}, str(report)
