"""What a call gives, it may use itself; where the other side gives a view of it, another gradient comes to that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


class Grouped(rows.Module):
    """Centres, and features relative to them: PointNet++'s set abstraction, which gives another view of the centres."""

    def __init__(self) -> None:
        self.near, self.norm, self.net = rows.Linear(6, 6), rows.BatchNorm(6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        centre = F.tanh(x) * 0.5
        return centre.reshape(4, 6), self.net(self.norm(self.near(x - centre)))


class Points(rows.Module):
    def __init__(self) -> None:
        self.pre, self.group, self.head = rows.Linear(6, 6), Grouped(), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        centre, made = self.group(self.pre(x))
        return self.head(made) * centre


class Sampled(columns.Layer):
    """The same, which gives the centres as they are, and works on groups of two."""

    def __init__(self) -> None:
        self.net, self.norm, self.near = columns.Dense(6, 6), columns.BatchNormalization(6), columns.Dense(6, 6)

    def forward(self, x: Any) -> Any:
        centre = F.tanh(x) * 0.3 + F.tanh(x) * 0.2
        return centre, self.net(self.norm(self.near((x - centre).reshape(2, 2, 6)))).reshape(4, 6)


class Cloud(columns.Layer):
    def __init__(self, slope: float) -> None:
        self.head, self.group, self.pre = columns.Dense(6, 6), Sampled(), columns.Dense(6, 6)
        self.slope = slope

    def forward(self, x: Any) -> Any:
        centre, made = self.group(self.pre(x))
        return self.head(made) * centre * self.slope


def test_what_a_call_gives_and_uses_may_be_given_as_a_view() -> None:
    """The bias before a norm gets a gradient that is nothing but rounding, and seemed to speak against it."""
    report = padiff.diff(Points(), Cloud(1.0), X)
    assert report.aligned, str(report)
    (source,) = padiff.diff(Points(), Cloud(1.1), X).sources
    assert (source.phase, source.candidate.path) == ("forward", ""), str(source)


class Boxes(rows.Module):
    """Boxes in pixels and scores below a hundredth in one tensor, as detectors give them."""

    def __init__(self) -> None:
        self.boxes, self.scores = rows.Linear(6, 4), rows.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        return F.concat([self.boxes(x) * 1e3, F.sigmoid(self.scores(x)) * 1e-3])


class Detected(columns.Layer):
    def __init__(self, wrong: float) -> None:
        self.scores, self.boxes, self.wrong = columns.Dense(6, 2), columns.Dense(6, 4), wrong

    def forward(self, x: Any) -> Any:
        boxes, scores = self.boxes(x) * 500 * 2, F.sigmoid(self.scores(x)) * 0.002 * (0.5 * self.wrong)
        return F.concat([boxes, scores])


@pytest.mark.parametrize("phase", ["both", "forward"])
def test_what_is_small_beside_the_rest_is_compared_by_itself(phase: str) -> None:
    """In the norm of the whole tensor a hundredth of the scores is less than rounding: they were `aligned`."""
    given = np.concatenate([X, -X, X * 2])
    assert padiff.diff(Boxes(), Detected(1.0), given, phase=phase).aligned
    for wrong in (1.01, 2.0):
        report = padiff.diff(Boxes(), Detected(wrong), given, phase=phase)
        (source,) = report.sources
        assert (source.candidate.path, str(source.what)) == ("", "output"), str(report)
        assert "2 of the 6 places of axis 1" in str(report)


class Chosen(rows.Module):
    """Two parts mixed by weights, which it gives another view of: a variable selection network."""

    def __init__(self) -> None:
        self.score, self.first, self.second = rows.Linear(12, 2), rows.Linear(6, 6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        weights = F.softmax(self.score(x))
        made = self.first(x[..., :6]) * weights[..., :1] + self.second(x[..., 6:]) * weights[..., 1:]
        return made, weights.reshape(4, 2)


class Selection(rows.Module):
    def __init__(self) -> None:
        self.pre, self.choice, self.head = rows.Linear(6, 12), Chosen(), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        made, weights = self.choice(self.pre(x))
        return self.head(F.tanh(made)), weights


class Choice(columns.Layer):
    """The same of parts that are given one by one, which gives the weights as they are."""

    def __init__(self) -> None:
        self.gate, self.parts = columns.Dense(12, 2), columns.Layers(columns.Dense(6, 6), columns.Dense(6, 6))

    def forward(self, a: Any, b: Any) -> Any:
        weights = F.softmax(self.gate(F.concat([a, b])))
        return self.parts[0](a) * weights[..., :1] + self.parts[1](b) * weights[..., 1:], weights


class Selected(columns.Layer):
    def __init__(self, slope: float) -> None:
        self.head, self.select, self.pre, self.slope = columns.Dense(6, 6), Choice(), columns.Dense(6, 12), slope

    def forward(self, x: Any) -> Any:
        x = self.pre(x)
        made, weights = self.select(x[..., :6], x[..., 6:])
        return self.head(F.tanh(made * self.slope)), weights


def test_what_a_call_gives_and_uses_is_no_source_beside_a_fault() -> None:
    """What it is given is no measure here: one tensor on one side, two on the other."""
    report = padiff.diff(Selection(), Selected(1.0), X)
    assert report.aligned, str(report)
    (source,) = padiff.diff(Selection(), Selected(1.1), X).sources
    assert (source.phase, source.candidate.path) == ("forward", ""), str(source)
