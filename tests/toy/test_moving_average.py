"""Let the forward pass move weights towards others, as a momentum encoder does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def momentum(base: Any, linear: Any, names: tuple[str, str], keep: float = 0.9, *, apart: bool = False) -> Any:
    class Net(base):
        def __init__(self) -> None:
            self.student, self.teacher = linear(4, 4), linear(4, 4)
            for name in names:
                mine = getattr(self.student, name).data
                getattr(self.teacher, name).data = mine + 0.5 if apart else mine.copy()

        def forward(self, x: Any) -> Any:
            for name in names:
                mine, other = getattr(self.student, name), getattr(self.teacher, name)
                other.data = (other.data * keep + mine.data * (1 - keep)).astype(other.data.dtype)
            return self.student(x) + self.teacher(x)

    return Net()


@pytest.mark.parametrize("keep", [0.9, 0.99], ids=["right", "wrong"])
def test_an_average_of_what_is_equal_moves_once_it_has_other_values(keep: float) -> None:
    """The candidate's first run changed nothing: what later ones changed stayed, and was told as never loaded."""
    reference = momentum(rows.Module, rows.Linear, ("weight", "bias"), apart=True)
    candidate = momentum(columns.Layer, columns.Dense, ("kernel", "offset"), keep)
    report = padiff.diff(reference, candidate, (X,))
    assert report.aligned == (keep == 0.9), str(report)
    assert {source.candidate.path for source in report.sources} <= {"teacher"}, str(report)
    assert np.array_equal(candidate.teacher.offset.data, reference.teacher.bias.data)


@pytest.mark.parametrize("keep", [0.9, 0.8, 1.0], ids=["right", "wrong", "never"])
def test_an_average_may_be_a_buffer_on_one_side_and_frozen_on_the_other(keep: float) -> None:
    """One that the candidate never updates was compared nowhere, where it is no buffer there."""

    class Ours(rows.Module):
        def __init__(self) -> None:
            self.layer, self.average = rows.Linear(4, 4), rows.buffer(np.ones(4))

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            self.average.data = (self.average.data * 0.9 + y.data.mean(0) * 0.1).astype(np.float32)
            return y

    class Theirs(rows.Module):
        def __init__(self) -> None:
            self.layer, self.mean = rows.Linear(4, 4), rows.parameter(4)
            self.mean.requires_grad = False

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            if keep < 1:
                self.mean.data = (self.mean.data * keep + y.data.mean(0) * 0.1).astype(np.float32)
            return y

    report = padiff.diff(Ours(), Theirs(), (X,))
    assert report.aligned == (keep == 0.9), str(report)
    told = [(source.what.kind, str(source.what)) for source in report.sources]
    assert told == [] if keep == 0.9 else [("updated_buffer", "mean")], str(report)
