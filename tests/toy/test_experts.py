"""Mix experts of one shape: nothing but their place tells them apart, and each side keeps them in lists of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


class Expert(rows.Module):
    """Two layers."""

    def __init__(self) -> None:
        self.up, self.down = rows.Linear(4, 8), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x)))


class Mixture(rows.Module):
    """Four experts, weighed by a gate."""

    def __init__(self) -> None:
        self.gate, self.experts = rows.Linear(4, 4), rows.ModuleList(*(Expert() for _ in range(4)))

    def forward(self, x: Any) -> Any:
        share = F.softmax(self.gate(x))
        parts = [expert(x) * share[:, n : n + 1] for n, expert in enumerate(self.experts)]
        return parts[0] + parts[1] + parts[2] + parts[3]


class Port(columns.Layer):
    """The same, with the experts' layers in two lists, and the sum the other way round."""

    def __init__(self, fault: str = "") -> None:
        self.w1, self.w2 = (columns.Layers(*(columns.Dense(*one) for _ in range(4))) for one in ((4, 8), (8, 4)))
        self.router, self.fault = columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        share, total = F.softmax(self.router(x)), 0.0
        for n in (3, 2, 1, 0) if self.fault != "half" else (3, 2):
            part = self.w2[n](F.gelu(self.w1[n](x))) * share[:, n : n + 1]
            total = part * (2.0 if self.fault == "doubled" and n == 1 else 1.0) + total
        return total


def test_experts_are_told_apart_by_their_shares() -> None:
    report = padiff.diff(Mixture(), Port(), TOKENS)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == 18


@pytest.mark.parametrize("fault", ["doubled", "half"])
def test_a_wrong_mixture_is_no_pass(fault: str) -> None:
    report = padiff.diff(Mixture(), Port(fault), TOKENS)
    assert not report.aligned
    assert {source.candidate.path for source in report.sources if source.phase == "forward"} == {""}, str(report)
