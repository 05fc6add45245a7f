"""Recurrent cells of a library against linear layers whose results code of a port's own puts together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)


class Recurrent(rows.Module):
    """A cell that goes over a sequence forward, and one that goes backward."""

    def __init__(self) -> None:
        self.there, self.back, self.out = rows.LSTMCell(3, 4), rows.LSTMCell(3, 4), rows.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        zeros = x[:, 0, :1] * np.zeros(4, np.float32)
        states = []
        for cell, steps in ((self.there, range(5)), (self.back, reversed(range(5)))):
            h, c = zeros, zeros
            for step in steps:
                h, c = cell(x[:, step], (h, c))
            states.append(h)
        return self.out(F.concat(states))


class Step(columns.Layer):
    """A cell of two linear layers, or of one for each gate."""

    def __init__(self, *, apart: bool, fault: str = "") -> None:
        count, size = (4, 4) if apart else (1, 16)
        self.given = columns.Layers(*(columns.Dense(3, size) for _ in range(count)))
        self.kept = columns.Layers(*(columns.Dense(4, size) for _ in range(count)))
        self.fault = fault

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        gates = F.concat([one(x) + other(h) for one, other in zip(self.given, self.kept, strict=True)])
        i, f, g, o = (gates[:, 4 * n : 4 * n + 4] for n in range(4))
        c = F.sigmoid(f + 1.0 if self.fault == "forget" else f) * c + F.sigmoid(i) * F.tanh(g)
        return F.sigmoid(o) * (c if self.fault == "tanh" else F.tanh(c)), c


class ByHand(columns.Layer):
    def __init__(self, *, apart: bool, fault: str = "") -> None:
        self.forth, self.reverse = Step(apart=apart), Step(apart=apart, fault=fault)
        self.last = columns.Dense(8, 2)

    def forward(self, x: Any) -> Any:
        zeros = x[:, 0, :1] * np.zeros(4, np.float32)
        states = []
        for cell, steps in ((self.forth, range(5)), (self.reverse, reversed(range(5)))):
            h, c = zeros, zeros
            for step in steps:
                h, c = cell(x[:, step], h, c)
            states.append(h)
        return self.last(F.concat(states))


@pytest.mark.parametrize("turned", [False, True], ids=["cells", "layers"])
@pytest.mark.parametrize("apart", [False, True], ids=["packed", "each"])
@pytest.mark.parametrize("fault", ["", "forget", "tanh"])
def test_a_cell_is_two_linear_layers(fault: str, apart: bool, turned: bool) -> None:
    """All parameters of such cells were left over: padiff spoke of two architectures."""
    ours, theirs = Recurrent(), ByHand(apart=apart, fault=fault)
    report = padiff.diff(theirs, ours, X) if turned else padiff.diff(ours, theirs, X)
    at = "back" if turned else "reverse"
    assert {one.candidate.path for one in report.sources} == ({at} if fault else set()), str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference + report.transfer.unmatched_candidate
