"""Low-rank additions to projections, a layer each or in parameters that hold those of several projections at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 6)).astype(np.float32)
RANK = 2


class Adapted(rows.Module):
    """A projection with an addition over fewer channels."""

    def __init__(self) -> None:
        self.base = rows.Linear(6, 6, bias=False)
        self.down, self.up = rows.Linear(6, RANK, bias=False), rows.Linear(RANK, 6, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


class Listed(rows.Module):
    """Attention whose queries and values are adapted."""

    def __init__(self) -> None:
        self.q, self.v = Adapted(), Adapted()
        self.k, self.o = rows.Linear(6, 6, bias=False), rows.Linear(6, 6, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.o(F.attention(self.q(x), self.k(x), self.v(x), 2))


class Packed(columns.Layer):
    """The same; the first maps of all additions in one matrix, and the second ones in one parameter."""

    def __init__(self, ways: str, fault: str = "") -> None:
        self.ways, self.fault = ways, fault
        self.qkv, self.o = columns.Dense(6, 18, bias=False), columns.Dense(6, 6, bias=False)
        if "down" in ways:
            self.down = columns.weight(6, 2 * RANK, scale=0.5)
        else:
            self.down_q, self.down_v = (columns.Dense(6, RANK, bias=False) for _ in range(2))
        if "up" in ways:
            self.up = columns.weight(2, RANK, 6, scale=0.5)
        else:
            self.up_q, self.up_v = (columns.Dense(RANK, 6, bias=False) for _ in range(2))

    def forward(self, x: Any) -> Any:
        q, k, v = (self.qkv(x)[..., 6 * n : 6 * n + 6] for n in range(3))
        low = (
            [self.down_q(x), self.down_v(x)]
            if "down" not in self.ways
            else ([(x @ self.down)[..., :RANK], (x @ self.down)[..., RANK:]])
        )
        if "up" in self.ways:
            q, v = q + low[0] @ self.up[0], v + low[1] @ self.up[0 if self.fault == "place" else 1]
        else:
            q, v = q + self.up_q(low[0]), v + self.up_v(low[1])
        return x + self.o(F.attention(q, -k if self.fault == "sign" else k, v, 2))


@pytest.mark.parametrize(
    ("ways", "fault"),
    [("down", ""), ("down", "sign"), ("up", ""), ("up", "place"), ("down up", ""), ("down up", "place")],
)
def test_additions_to_several_projections_in_one_parameter(ways: str, fault: str) -> None:
    """They had no counterpart: their like are in modules of their own, beside projections of the same value."""
    ours, theirs = rows.Sequential(Listed(), Listed()), columns.Stack(Packed(ways), Packed(ways, fault))
    report = padiff.diff(ours, theirs, X)
    assert report.aligned == (not fault), str(report)
    assert [one.candidate.path for one in report.sources] == ["1"] * bool(fault), str(report)
    if not fault:
        report = padiff.diff(theirs, ours, X)
        assert report.aligned, str(report)
