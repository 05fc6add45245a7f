"""Layers that others pack beside one that is matched by itself: that one may take something else in a port."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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


Y = np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)


class Attentive(rows.Module):
    """A recurrent cell with all gates in one map of its input and one of its state; a matrix rates what it is given."""

    def __init__(self) -> None:
        self.first, self.rates = rows.Linear(6, 6), rows.parameter(6, 6, scale=0.5)
        self.on_input, self.on_state = rows.parameter(18, 6), rows.parameter(18, 6)
        self.bias, self.bias_of_state = rows.parameter(18), rows.parameter(18)

    def forward(self, x: Any) -> Any:
        given = F.tanh(self.first(x))
        share = F.softmax(((given @ self.rates) * x).sum(-1))
        state = x[:, 0] * 0.0
        for step in range(4):
            taken = given[:, step] @ self.on_input.transpose(1, 0) + self.bias
            kept = state @ self.on_state.transpose(1, 0) + self.bias_of_state
            gate = F.sigmoid(taken[:, :6] + kept[:, :6])
            update = F.sigmoid(taken[:, 6:12] + kept[:, 6:12]) * share[:, step : step + 1]
            state = state + update * (F.tanh(taken[:, 12:] + gate * kept[:, 12:]) - state)
        return state


class AttentiveByGates(columns.Layer):
    """The same with the gates apart from what is new, and a layer that rates what both of the input's are given."""

    def __init__(self, fault: str) -> None:
        self.first, self.rates, self.fault = columns.Dense(6, 6), columns.Dense(6, 6, bias=False), fault
        self.gates, self.kept_gates = columns.Dense(6, 12), columns.Dense(6, 12)
        self.new, self.kept_new = columns.Dense(6, 6), columns.Dense(6, 6)

    def forward(self, x: Any) -> Any:
        given = F.tanh(self.first(x))
        share = F.softmax((self.rates(given) * x).sum(-1))
        state = x[:, 0] * 0.0
        for step in range(4):
            both = F.sigmoid(self.gates(given[:, step]) + self.kept_gates(state))
            kept = self.kept_new(both[:, :6] * state if self.fault else state)
            new = F.tanh(self.new(given[:, step]) + (kept if self.fault else both[:, :6] * kept))
            state = state + both[:, 6:] * share[:, step : step + 1] * (new - state)
        return state


@pytest.mark.parametrize("fault", ["", "reset"])
def test_a_layer_that_takes_the_same_and_has_a_counterpart_leaves_those_packed_beside_it(fault: str) -> None:
    """They were looked for among all that take the same: right ports lacked a counterpart of the packed layer."""
    report = padiff.diff(Attentive(), AttentiveByGates(fault), (Y,))
    assert report.transfer is not None
    assert report.transfer.unmatched_reference == report.transfer.unmatched_candidate == (), str(report)
    assert report.aligned is (not fault), str(report)
    assert len(report.sources) == len(fault[:1]), str(report)
