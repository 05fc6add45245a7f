"""A module that is called twice, of which one call's outputs are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)


class Once(rows.Module):
    def __init__(self) -> None:
        self.q, self.o = rows.Linear(8, 8), rows.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.o(F.tanh(self.q(x)))


class Twice(columns.Layer):
    def __init__(self, scale: float = 1.0) -> None:
        self.q, self.o, self.scale = columns.Dense(8, 8), columns.Dense(8, 8), scale

    def forward(self, x: Any) -> Any:
        y = self.q(x)
        y = self.q(x)
        return self.o(F.tanh(y) * self.scale)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_call_whose_output_is_not_used_is_no_counterpart(reverse: bool) -> None:
    """PaddleNLP's BLIP computes queries, keys and values twice: the first, which gets no gradient, was compared."""

    def pair(scale: float) -> tuple[Any, Any]:
        both = rows.Sequential(Once(), Once()), columns.Stack(Twice(), Twice(scale))
        return both[::-1] if reverse else both

    report = padiff.diff(*pair(1.0), TOKENS)
    assert report.aligned, str(report)
    report = padiff.diff(*pair(1.1), TOKENS)
    assert [source.candidate.path for source in report.sources] == ["1"], str(report)


class Normed(rows.Module):
    def __init__(self) -> None:
        self.first, self.norm = rows.Linear(8, 8), rows.BatchNorm(8)

    def forward(self, x: Any) -> Any:
        return self.norm(self.first(x))


class NormedTwice(columns.Layer):
    def __init__(self) -> None:
        self.first, self.norm = columns.Dense(8, 8), columns.BatchNormalization(8)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.first(x))
        self.norm(y)
        return y


def test_statistics_that_a_further_call_moves_are_of_the_code_that_makes_it() -> None:
    report = padiff.diff(Normed(), NormedTwice(), TOKENS[0])
    (source,) = report.sources
    assert (source.candidate.path, source.what.kind) == ("", "updated_buffer"), str(report)
    assert source.cause is not None
    assert source.cause.parameters == {"name": "norm", "reference": 1, "candidate": 2}, str(report)
