"""Say of no value that both sides have it where one has it with its axes in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows

SIZE = 4
X = np.random.default_rng(0).standard_normal((3, 2, SIZE, SIZE)).astype(np.float32)
TABLE = np.random.default_rng(1).standard_normal((2, SIZE, SIZE)).astype(np.float32)


class Scored(rows.Module):
    """Scores, and what code adds to them for each head."""

    def __init__(self) -> None:
        self.first, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        y = functional.tanh(self.first(x))
        return self.last(functional.tanh(y + functional.tanh(rows.Tensor(TABLE))))


class Port(columns.Layer):
    """The same, with an axis for the batch; ``turned``: with queries for keys."""

    def __init__(self, *, turned: bool) -> None:
        self.last, self.first, self.turned = columns.Dense(SIZE, SIZE), columns.Dense(SIZE, SIZE), turned

    def forward(self, x: Any) -> Any:
        y = functional.tanh(self.first(x))
        table = functional.tanh(columns.Tensor(TABLE.transpose(0, 2, 1) if self.turned else TABLE))
        return self.last(functional.tanh(y + table.reshape(1, 2, SIZE, SIZE)))


@pytest.mark.parametrize("turned", [False, True])
def test_a_table_with_its_axes_in_another_order_is_not_the_same(turned: bool) -> None:
    """The cause was that both add it, `a, b: the same values on both sides`."""
    report = padiff.diff(Scored(), Port(turned=turned), X)
    assert report.aligned is not turned, str(report)
    assert "the same values" not in str(report)
    assert len(report.sources) == turned
