"""Layers that others pack beside one that is matched by itself: that one may take something else in a port."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


class Gated(rows.Module):
    """Two gated maps of a norm's output, and a gate of what they make, of the same."""

    def __init__(self) -> None:
        self.norm, self.last = rows.LayerNorm(4), rows.Linear(3, 4)
        self.a, self.a_gate, self.b, self.b_gate = (rows.Linear(4, 3) for _ in range(4))
        self.gate = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        both = self.a(x) * F.gelu(self.a_gate(x)) + F.relu(self.b(x) * F.gelu(self.b_gate(x)))
        return self.last(both) * F.relu(self.gate(x))


class PackedGated(columns.Layer):
    """The same with maps in one layer, and their gates in another; a wrong one takes its gate of what is no norm's."""

    def __init__(self, wrong: bool) -> None:
        self.start, self.result, self.wrong = columns.LayerNormalization(4), columns.Dense(3, 4), wrong
        self.maps, self.gates, self.open = columns.Dense(4, 6), columns.Dense(4, 6), columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.start(x)
        both = self.maps(y) * F.gelu(self.gates(y))
        given = x if self.wrong else y
        return self.result(both[..., :3] + F.relu(both[..., 3:])) * F.relu(self.open(given))


def test_layer_that_takes_something_else_leaves_those_packed_that_stand_beside_it() -> None:
    assert padiff.diff(Gated(), PackedGated(False), (X,)).aligned
    report = padiff.diff(Gated(), PackedGated(True), (X,))
    (source,) = report.sources
    assert (source.phase.value, source.what.kind, source.what.taker) == ("forward", "input", "open")
