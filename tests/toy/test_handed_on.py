"""Where code makes what is right, and hands another value on, the line that hands it on is the fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = (np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32),)


class Reversible(rows.Module):
    """Two streams, of which each block moves one by the other, and then the other by the first."""

    def __init__(self) -> None:
        self.f = rows.ModuleList(*(rows.Linear(4, 4) for _ in range(2)))
        self.g = rows.ModuleList(*(rows.Linear(4, 4) for _ in range(2)))
        self.head = rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        left, right = F.tanh(x), F.sigmoid(x)
        for f, g in zip(self.f, self.g, strict=True):
            left = left + f(right)
            right = right + g(left)
        return self.head(F.tanh(left) * F.sigmoid(right))


class ReversiblePort(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.first, self.second = (columns.Layers(*(columns.Dense(4, 4) for _ in range(2))) for _ in range(2))
        self.out, self.fault = columns.Dense(4, 2), fault

    def forward(self, x: Any) -> Any:
        left, right = F.tanh(x), F.sigmoid(x)
        if self.fault == "exchanged":
            left, right = right, left
        for first, second in zip(self.first, self.second, strict=True):
            left = left + first(right)
            right = right + second(right if self.fault == "own" else left)
        return self.out(F.tanh(left) * F.sigmoid(right))


def line(number: int) -> str:
    return f"{__file__}:{ReversiblePort.forward.__code__.co_firstlineno + number}"


def test_a_right_port_hands_on_what_is_right() -> None:
    assert padiff.diff(Reversible(), ReversiblePort(""), X).aligned


def test_a_stream_that_is_handed_on_in_place_of_the_other_is_one_source_at_that_line() -> None:
    """It was placed at the line that makes the stream, of which operations were `in the reference only`."""
    report = padiff.diff(Reversible(), ReversiblePort("own"), X)
    assert str(report).startswith("not aligned: 1 source"), report
    assert {one.candidate.location for one in report.sources} == {line(6)}, report


class Halves(rows.Module):
    """A layer for one half, a function for the other."""

    def __init__(self) -> None:
        self.one, self.two, self.head = rows.Linear(4, 4), rows.Linear(4, 3), rows.Linear(7, 2)

    def forward(self, x: Any) -> Any:
        a, b = F.tanh(x), F.sigmoid(x)
        return self.head(F.concat([self.one(a), self.two(b)]))


class HalvesPort(columns.Layer):
    def __init__(self, exchanged: bool) -> None:
        self.a, self.b, self.c = columns.Dense(4, 4), columns.Dense(4, 3), columns.Dense(7, 2)
        self.exchanged = exchanged

    def forward(self, x: Any) -> Any:
        one, two = F.tanh(x), F.sigmoid(x)
        if self.exchanged:
            one, two = two, one
        return self.c(F.concat([self.a(one), self.b(two)]))


@pytest.mark.parametrize("exchanged", [False, True])
def test_two_values_in_each_others_place_are_one_source(exchanged: bool) -> None:
    report = padiff.diff(Halves(), HalvesPort(exchanged), X)
    assert report.aligned is not exchanged, report
    if exchanged:
        assert str(report).startswith("not aligned: 1 source in 2 places ("), report
        told = {str(one.cause) for one in report.sources}
        assert told == {
            "a takes tanh of the input x in the reference, sigmoid of the input x in the candidate",
            "b takes sigmoid of the input x in the reference, tanh of the input x in the candidate",
        }
