"""A gradient of which rounding is all that is left excuses no other one."""

from __future__ import annotations

from typing import Any

import pytest

import padiff
from padiff.testing.toy import columns, rows

from .generated import numbers


class Gate(rows.Module):
    """A gate around one."""

    def __init__(self) -> None:
        self.layer = rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + 1.0


class GateColumns(columns.Layer):
    """The same, for which no kernel has float64."""

    def __init__(self) -> None:
        self.project = columns.Dense(4, 4)

    def forward(self, x: Any) -> Any:
        if x.dtype == "float64":
            msg = "no kernel for float64"
            raise TypeError(msg)
        return self.project(x) + 1.0


class Gated(rows.Module):
    """The bias in front of the norm has no gradient but what is rounded; the gate is given back, too."""

    def __init__(self) -> None:
        self.inner, self.norm = rows.Linear(4, 4), rows.BatchNorm(4)
        self.gate, self.head = Gate(), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.inner(x))
        gate = self.gate(x)
        return self.head(x * gate), gate


class GatedColumns(columns.Layer):
    """The same; ``detached`` forgets the gradient of the gate where it is used."""

    def __init__(self, detached: bool) -> None:
        self.project, self.norm = columns.Dense(4, 4), columns.BatchNormalization(4)
        self.gate, self.last = GateColumns(), columns.Dense(4, 4)
        self.detached = detached

    def forward(self, x: Any) -> Any:
        x = self.norm(self.project(x))
        gate = self.gate(x)
        used = type(gate)(gate.data.copy()) if self.detached else gate
        return self.last(x * used), gate


@pytest.mark.parametrize("detached", [False, True])
def test_a_gradient_of_rounding_excuses_no_other(detached: bool) -> None:
    report = padiff.diff(Gated(), GatedColumns(detached), (numbers(32, 4),))
    assert report.aligned is not detached, str(report)
    assert [source.candidate.path for source in report.sources] == [""] * detached, str(report)
