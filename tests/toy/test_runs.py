"""Count what a diff runs: nothing more where rounding explains what is left, or where no dataflow can be followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.forcing import LocalSide
from padiff.testing.toy import columns, functional, rows

from .generated import numbers

TANH = functional.tanh
NEAR = 0.005


class Between(rows.Module):
    """What two layers that are nearly the same differ in: rounding of theirs is a large share of that."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = rows.Linear(4, 4), rows.Linear(4, 4)
        self.second.weight.data[:] = self.first.weight.data * (1 + NEAR * np.random.random((4, 4)))
        self.second.bias.data[:] = self.first.bias.data

    def forward(self, x: Any) -> Any:
        return self.first(x) - self.second(x)


class Port(columns.Layer):
    """The same under other names, and with a factor."""

    def __init__(self, runs: list[int], names: tuple[str, str], factor: float = 1.0, *, shy: bool = False) -> None:
        super().__init__()
        self.runs, self.names, self.factor, self.shy = runs, names, factor, shy
        for name in names:
            setattr(self, name, columns.Dense(4, 4))

    def forward(self, x: Any) -> Any:
        self.runs.append(1)
        if self.shy and functional.tanh is not TANH:
            msg = "it does not run while functions are intercepted"
            raise RuntimeError(msg)
        first, second = (getattr(self, name)(x * np.float32(self.factor)) for name in self.names)
        return first - second


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what gets one item for each run that is made for the dataflow alone."""
    found: list[int] = []
    plain = LocalSide.flow

    def flow(self: LocalSide, task: Any) -> Any:
        found.append(1)
        return plain(self, task)

    monkeypatch.setattr(LocalSide, "flow", flow)
    return found


def test_nothing_is_followed_where_rounding_explains_what_is_left(followed: list[int]) -> None:
    np.random.seed(0)
    runs: list[int] = []
    report = padiff.diff(Between(), Port(runs, ("first", "second"), 1 + 2**-23), (numbers(),))
    assert report.aligned, str(report)
    assert report.free_runs is not None
    assert report.free_runs.by == "disturbed"  # further apart than one rounding
    assert (len(runs), followed) == (2, [])


def test_what_differs_is_matched_anew_by_the_dataflow(followed: list[int]) -> None:
    np.random.seed(0)
    report = padiff.diff(Between(), Port([], ("first", "second"), 1.01), (numbers(),))
    assert not report.aligned
    assert len(followed) == 2


def test_what_does_not_run_while_it_is_followed_runs_without(followed: list[int]) -> None:
    np.random.seed(0)
    runs: list[int] = []
    report = padiff.diff(Between(), Port(runs, ("one", "other"), shy=True), (numbers(),))
    assert report.aligned, str(report)
    assert (len(runs), followed) == (3, [])
