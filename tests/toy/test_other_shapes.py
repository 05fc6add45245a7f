"""Apply a layer to values of another shape: nothing else in the code around it is spared a comparison for that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)


class Net(rows.Module):
    """Two layers on (batch, time, features), one norm, a head."""

    def __init__(self, p: float = 0.0) -> None:
        self.up, self.drop, self.down = rows.Linear(4, 6), rows.Dropout(p), rows.Linear(6, 4)
        self.norm, self.head = rows.LayerNorm(4), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.down(self.drop(F.relu(self.up(x))))
        return self.head(self.norm(x + y) * 0.5)


class Port(columns.Layer):
    """The same with its first layers on (batch * time, features), and one fault in the code around them."""

    def __init__(self, fault: str = "", p: float = 0.0) -> None:
        self.out, self.ln = columns.Dense(4, 3), columns.LayerNormalization(4)
        self.second, self.drop, self.first = columns.Dense(6, 4), columns.Drop(1 - p), columns.Dense(4, 6)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        y = self.first(x.reshape(10, 4))
        y = F.tanh(y) if self.fault == "inside" else F.relu(y)
        y = self.second(self.drop(y)).reshape(2, 5, 4)
        y = columns.Tensor(y.data) if self.fault == "detached" else y
        y = self.ln(x + y * (1.01 if self.fault == "before the norm" else 1))
        return self.out(y * (0.51 if self.fault == "after the norm" else 0.5))


BETWEEN = {
    "inside": ("second", "ln"),
    "before the norm": ("second", "ln"),
    "after the norm": ("ln", "out"),
    "detached": None,
}


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_a_right_port_is_aligned(p: float) -> None:
    report = padiff.diff(Net(p), Port(p=p), TOKENS)
    assert report.aligned, str(report)


@pytest.mark.parametrize("fault", BETWEEN)
def test_a_fault_in_the_code_around_is_named_there(fault: str) -> None:
    """Version 0.4 judged nothing more in the code around: what differed there had no place, or passed."""
    report = padiff.diff(Net(), Port(fault), TOKENS)
    (source,) = report.sources
    assert source.candidate.path == "", str(report)
    assert source.between == BETWEEN[fault], str(report)
    assert source.phase is (Phase.BACKWARD if fault == "detached" else Phase.FORWARD), str(report)


def merging(base: Any, linear: Any, axes: tuple[int, int]) -> Any:
    """Return a model whose module brings two rows of tokens together: of one sequence, or of two."""

    class Merge(base):
        def __init__(self) -> None:
            self.linear = linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.linear(x.transpose(*axes, 2).reshape(axes[0] * 2 + 2, -1, 8))

    class Model(base):
        def __init__(self) -> None:
            self.first, self.merge, self.head = linear(4, 4), Merge(), linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.merge(self.first(x)))

    return Model()


def test_an_output_of_another_shape_is_named_where_the_shapes_part() -> None:
    """The last layer was named, which only hands on the shape that it is given."""
    report = padiff.diff(
        merging(rows.Module, rows.Linear, (0, 1)), merging(columns.Layer, columns.Dense, (1, 0)), TOKENS[:, :4]
    )
    (source,) = report.sources
    assert source.candidate.path == "merge", str(report)
