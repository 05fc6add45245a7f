"""Exchange branches of like modules that hold parameters themselves: each of these lies as in the like module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.refinement import _exchanges, _partners
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
NOISE = np.random.default_rng(1).standard_normal(24).astype(np.float32)


class Noisy(rows.Module):
    """A layer with noise in its weights, of a size that is learned."""

    def __init__(self, inner: int, outer: int) -> None:
        self.mean, self.size = rows.parameter(outer, inner), rows.parameter(outer, inner)
        self.shift, self.spread = rows.parameter(outer), rows.parameter(outer)
        self.given, self.made = rows.buffer(NOISE[:inner]), rows.buffer(NOISE[:outer])

    def forward(self, x: Any) -> Any:
        weight = self.mean + self.size * (self.made.reshape(-1, 1) * self.given)
        return x @ weight.transpose(1, 0) + (self.shift + self.spread * self.made)


class NoisyPort(columns.Layer):
    """The same, with the noise put into what is multiplied, and matrices ``[in, out]``."""

    def __init__(self, inner: int, outer: int, fault: float = 1.0) -> None:
        self.fault = fault
        self.b, self.w = columns.weight(outer), columns.weight(inner, outer)
        self.d, self.v = columns.weight(outer), columns.weight(inner, outer)
        self.given, self.made = columns.Tensor(NOISE[:inner]), columns.Tensor(NOISE[:outer])

    def forward(self, x: Any) -> Any:
        return x @ self.v + (x * self.given) @ self.w * self.made + self.d + self.b * self.made * self.fault


class Dueling(rows.Module):
    def __init__(self) -> None:
        self.first = rows.Linear(8, 8)
        self.vh, self.vz, self.ah, self.az = (Noisy(8, outer) for outer in (8, 7, 8, 21))

    def forward(self, x: Any) -> Any:
        x = F.relu(self.first(x))
        values = self.vz(F.relu(self.vh(x))).reshape(-1, 1, 7)
        actions = self.az(F.relu(self.ah(x))).reshape(-1, 3, 7)
        return F.softmax(values + actions - actions.mean(1, keepdims=True))


class DuelingPort(columns.Layer):
    """The same, with the branches in the other order."""

    def __init__(self, slope: float, spread: float) -> None:
        self.adv = columns.Stack(NoisyPort(8, 8, spread), columns.Rectifier(), NoisyPort(8, 21))
        self.val = columns.Stack(NoisyPort(8, 8), columns.Rectifier(), NoisyPort(8, 7))
        self.body, self.slope = columns.Dense(8, 8), slope

    def forward(self, x: Any) -> Any:
        x = F.relu(self.body(x))
        actions = self.adv(x).reshape(-1, 3, 7)
        values = self.val(x).reshape(-1, 1, 7)
        return F.softmax((actions - actions.mean(1, keepdims=True) + values) * self.slope)


class Summed(rows.Module):
    """Two branches that only the numbers behind them tell apart."""

    def __init__(self) -> None:
        self.first, self.one, self.two = rows.Linear(8, 8), Noisy(8, 8), Noisy(8, 8)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.first(x))
        return F.softmax(self.one(x) * 0.3 + self.two(x))


class SummedPort(columns.Layer):
    """The same, with the branches in the other order."""

    def __init__(self, slope: float, spread: float) -> None:
        self.a, self.b = NoisyPort(8, 8, spread), NoisyPort(8, 8)
        self.body, self.slope = columns.Dense(8, 8), slope

    def forward(self, x: Any) -> Any:
        x = F.relu(self.body(x))
        return F.softmax((self.a(x) + self.b(x) * 0.3) * self.slope)


@pytest.mark.parametrize(
    ("reference", "candidate", "slope", "spread"),
    [
        (Dueling, DuelingPort, 1.0, 1.0),
        (Dueling, DuelingPort, 1.1, 1.0),
        (Dueling, DuelingPort, 1.0, 1.1),
        (Summed, SummedPort, 1.0, 1.0),
        (Summed, SummedPort, 1.1, 1.0),
    ],
)
def test_branches_of_modules_that_hold_parameters_are_told_apart(
    reference: Any, candidate: Any, slope: float, spread: float
) -> None:
    """By what takes their values; or they are exchanged later, with how their parameters lie.

    Right dueling networks were not aligned: these were matched anew then, in the order of definition.
    """
    report = padiff.diff(reference(), candidate(slope, spread), X)
    assert report.aligned is (slope == spread == 1.0), str(report)
    told = [""] * (slope != 1.0) + ["adv.0"] * (spread != 1.0)
    assert [one.candidate.path for one in report.sources] == told, str(report)


class Apart(rows.Module):
    """Two branches of one layer each, behind a function."""

    def __init__(self) -> None:
        self.first, self.left, self.right = (rows.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any) -> Any:
        x = F.gelu(self.first(x))
        return F.relu(self.left(x)) + F.tanh(self.right(x))


class ApartPort(columns.Layer):
    """The same; ``crossed`` calls the branches in the other order."""

    def __init__(self, front: float, behind: float, *, crossed: bool) -> None:
        self.f, self.a, self.b = (columns.Dense(8, 8) for _ in range(3))
        self.front, self.behind, self.crossed = front, behind, crossed

    def forward(self, x: Any) -> Any:
        x = F.gelu(self.f(x)) * self.front
        first, second = (F.tanh, F.relu) if self.crossed else (F.relu, F.tanh)
        return (first(self.a(x)) + second(self.b(x))) * self.behind


@pytest.mark.parametrize("crossed", [False, True])
def test_branches_are_exchanged_beside_a_fault_in_front_of_them(crossed: bool) -> None:
    report = padiff.diff(Apart(), ApartPort(1.1, 1.0, crossed=crossed), (X,))
    assert [str(source.cause) for source in report.sources] == ["mul(_, 1.1) in the candidate only"]


@pytest.mark.parametrize(("front", "behind", "tried"), [(1.1, 1.0, 0), (1.0, 1.1, 1)])
def test_what_follows_a_wrong_value_is_not_exchanged_for_it(
    front: float, behind: float, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try runs the call around them again, and those of a large block are many."""
    found = []

    def crossed(*given: Any) -> Any:
        found.append(given)
        return exchange(*given)

    exchange = _exchanges._crossed
    monkeypatch.setattr(_exchanges, "_crossed", crossed)
    padiff.diff(Apart(), ApartPort(front, behind, crossed=False), (X,))
    assert len(found) == tried


def test_no_weight_of_a_layer_is_tried_for_its_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of one kind on both sides say which is which."""
    searched = []

    def best_of(*given: Any, **options: Any) -> Any:
        searched.append(given)
        return search(*given, **options)

    search = _partners.best_of
    monkeypatch.setattr(_partners, "best_of", best_of)
    reference = rows.Sequential(rows.Linear(8, 8), rows.LayerNorm(8), rows.Linear(8, 8))
    candidate = columns.Stack(columns.Dense(8, 8), columns.LayerNormalization(8, 1e-2), columns.Dense(8, 8))
    report = padiff.diff(reference, candidate, (X,))
    assert [source.cause.name for source in report.sources] == ["settings"]
    assert not searched
