"""Merge modules into one step, called forward and then in reverse, where the other side holds each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

RNG = np.random.default_rng(0)
X, Z = (RNG.standard_normal((4, 6)).astype(np.float32) for _ in range(2))


class Scale(rows.Module):
    def __init__(self) -> None:
        self.shift, self.log = rows.parameter(6, scale=0.3), rows.parameter(6, scale=0.3)

    def forward(self, x: Any) -> Any:
        return (x + self.shift) * self.log.exp()

    def inverse(self, z: Any) -> Any:
        return z * (self.log * -1.0).exp() - self.shift


class Coupling(rows.Module):
    def __init__(self, flipped: bool) -> None:
        self.net, self.flipped = rows.Sequential(rows.Linear(3, 8), rows.Tanh(), rows.Linear(8, 6)), flipped

    def _changed(self, x: Any, inverse: bool) -> Any:
        a, b = (x[:, 3:], x[:, :3]) if self.flipped else (x[:, :3], x[:, 3:])
        found = self.net(a)
        scale, shift = F.tanh(found[:, :3]), found[:, 3:]
        b = (b - shift) * (scale * -1.0).exp() if inverse else b * scale.exp() + shift
        return F.concat([b, a] if self.flipped else [a, b])

    def forward(self, x: Any) -> Any:
        return self._changed(x, False)

    def inverse(self, z: Any) -> Any:
        return self._changed(z, True)


class Flow(rows.Module):
    def __init__(self) -> None:
        self.layers = rows.ModuleList(Scale(), Coupling(False), Scale(), Coupling(True))

    def forward(self, x: Any, z: Any) -> Any:
        layers = list(self.layers)
        for layer in layers:
            x = layer(x)
        for layer in layers[::-1]:
            z = layer.inverse(z)
        return x, z


class Step(columns.Layer):
    """Scaling and coupling as one, forward or in reverse."""

    def __init__(self, flipped: bool, fault: str) -> None:
        self.last, self.first = columns.Dense(8, 6), columns.Dense(3, 8)
        self.logs, self.bias = columns.weight(6), columns.weight(6)
        self.flipped, self.fault = flipped, fault

    def forward(self, x: Any, reverse: bool = False) -> Any:
        if not reverse:
            x = x * self.logs.exp() + self.bias if self.fault == "order" else (x + self.bias) * self.logs.exp()
        low, high = x[:, :3], x[:, 3:]
        a, b = (high, low) if self.flipped else (low, high)
        found = self.last(F.tanh(self.first(a)))
        scale, shift = (found[:, :3] if self.fault == "open" else F.tanh(found[:, :3])).exp(), found[:, 3:]
        b = (b - shift) / scale if reverse else b * scale + shift
        x = F.concat([b, a] if self.flipped else [a, b])
        return x / self.logs.exp() - self.bias if reverse else x


class Steps(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.odd, self.even = Step(True, fault), Step(False, fault)

    def forward(self, x: Any, z: Any) -> Any:
        return self.odd(self.even(x)), self.even(self.odd(z, True), True)


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "merged"])
def test_merged_steps_are_right(turned: bool) -> None:
    """0.6 took each step for the coupling that is its second half, and settled the scales' parameters on that."""
    sides = Flow(), Steps()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X, Z))
    assert report.aligned, str(report)


BETWEEN = {("", ("even.last", "odd.first")), ("odd", ("even.last", "end"))}
FORWARD = {("", ("start", "even.first")), *BETWEEN}
BOTH = {("even", ("last", "end")), ("", ("odd.last", "even.first")), *BETWEEN}


@pytest.mark.parametrize(("fault", "places"), [("order", FORWARD), ("open", BOTH)], ids=["order", "open"])
def test_a_fault_in_a_merged_step_is_placed_around_its_layers(fault: str, places: set[Any]) -> None:
    """Which of two vectors is which, the steps in reverse tell."""
    report = padiff.diff(Flow(), Steps(fault), (X, Z))
    assert places == {(one.candidate.path, one.between) for one in report.sources}, str(report)
