"""Join scales of several values in one parameter, and their shifts in another: the dataflow tells them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)


def _attended(queries: Any, keys: Any, x: Any) -> Any:
    return F.softmax(queries @ keys.transpose(0, 2, 1)) @ x


class ByKind(rows.Module):
    """Queries and keys made of one map: all scales in a parameter, all shifts, and what a gate is multiplied by."""

    def __init__(self) -> None:
        self.first, self.last = rows.Linear(8, 6), rows.Linear(8, 8)
        self.scales, self.shifts, self.gates = rows.parameter(2, 6), rows.parameter(2, 6), rows.parameter(2, 6)

    def forward(self, x: Any) -> Any:
        both = F.tanh(self.first(x).reshape(2, 5, 1, 6) * self.scales + self.shifts) * self.gates
        return self.last(_attended(both[:, :, 0], both[:, :, 1], x))


class Apart(columns.Layer):
    """The same with each in a parameter of its own, those of the queries first."""

    def __init__(self, fault: str = "") -> None:
        self.last, self.first, self.fault = columns.Dense(8, 8), columns.Dense(8, 6), fault
        self.a, self.b, self.c, self.d, self.e, self.f = (columns.weight(6) for _ in range(6))

    def forward(self, x: Any) -> Any:
        made = self.first(x)
        queries = F.tanh(made * self.a + self.b) * self.c
        keys = (F.sigmoid if self.fault else F.tanh)(made * self.d + self.e) * self.f
        return self.last(_attended(queries, keys, x))


class ByBranch(rows.Module):
    """The scale and the shift of queries in one parameter, those of keys in another."""

    def __init__(self) -> None:
        self.first, self.last = rows.Linear(8, 6), rows.Linear(8, 8)
        self.queries, self.keys = rows.parameter(2, 6), rows.parameter(2, 6)

    def forward(self, x: Any) -> Any:
        made = self.first(x)
        queries, keys = (made * one[0] + one[1] for one in (self.queries, self.keys))
        return self.last(_attended(queries, keys, x))


class ApartWithoutGates(Apart):
    """The same with each in a parameter of its own."""

    def __init__(self, fault: str = "") -> None:
        super().__init__(fault)
        del self.c, self.f

    def forward(self, x: Any) -> Any:
        made = self.first(x)
        queries, keys = made * self.a + self.b, made * self.d * (1.1 if self.fault else 1.0) + self.e
        return self.last(_attended(queries, keys, x))


@pytest.mark.parametrize("fault", ["", "keys"])
@pytest.mark.parametrize(("ours", "theirs"), [(ByKind, Apart), (ByBranch, ApartWithoutGates)])
def test_what_one_parameter_joins_takes_as_many_values_as_it_does(ours: Any, theirs: Any, fault: str) -> None:
    """Those that come first in the run were joined, a scale with a shift: right ports were not aligned."""
    report = padiff.diff(rows.Sequential(ours(), ours()), columns.Stack(theirs(), theirs(fault)), X)
    assert report.aligned is (not fault), str(report)
    assert [source.candidate.path for source in report.sources] == ["1"] * bool(fault), str(report)
