"""Say whose value it is that stands where another one should: an output in another's place, a step left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


class Heads(rows.Module):
    def __init__(self) -> None:
        self.one, self.two, self.norm = rows.Linear(4, 6), rows.Linear(4, 6), rows.LayerNorm(6)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm(self.one(x)))
        return y, self.two(x)


class Ported(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.one, self.two, self.ln = columns.Dense(4, 6), columns.Dense(4, 6), columns.LayerNormalization(6)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        y = self.ln(self.one(x))
        if self.fault == "small":
            y = y * 1.0001
        y, z = y if self.fault == "no relu" else F.relu(y), self.two(x)
        return (z, y) if self.fault == "order" else (y, z)


@pytest.mark.parametrize(("fault", "value"), [("order", "output [1]"), ("no relu", "output of norm"), ("small", None)])
def test_a_value_in_the_place_of_another_is_named(fault: str, value: str | None) -> None:
    """Outputs in another order were a source without a word of the order."""
    (source,) = padiff.diff(Heads(), Ported(fault), (X,)).sources
    told = [one.figures["value"] for one in source.evidence if one.kind in ("mistaken_value", "functions")]
    assert told == ([] if value is None else [value])


@pytest.mark.parametrize("turned", [False, True])
def test_positions_below_a_name_are_positions_whatever_order_the_names_are_in(turned: bool) -> None:
    """A list under a key was read in whatever order its values agree, where the keys came in another order."""

    def exits(base: Any, linear: Any, *, first: bool, turned: bool = False) -> Any:
        class Model(base):
            def __init__(self) -> None:
                self.one, self.two = linear(4, 4), linear(4, 4)

            def forward(self, x: Any) -> Any:
                y = self.one(x)
                z = self.two(F.tanh(y))
                found, last = {"exits": [z, y] if turned else [y, z]}, {"last": z * 2.0}
                return {**last, **found} if first else {**found, **last}

        return Model()

    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    theirs = exits(columns.Layer, columns.Dense, first=False, turned=turned)
    report = padiff.diff(exits(rows.Module, rows.Linear, first=True), theirs, x)
    assert report.aligned is not turned, str(report)


def called(base: Any, linear: Any, *, twice: bool) -> Any:
    """Return a model that calls a module of its own with a value, and what is made of it, or with the value twice."""

    class Inner(base):
        def __init__(self) -> None:
            self.out = linear(4, 4)

        def forward(self, x: Any, y: Any) -> Any:
            return self.out(x * y)

    class Model(base):
        def __init__(self) -> None:
            self.first, self.inner = linear(4, 4), Inner()

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            y = x + F.tanh(x)
            if twice:
                return self.inner(x, x) + y
            return self.inner(x, y) + y

    return Model()


def test_a_value_that_a_module_is_called_with_is_wrong_at_the_line_that_calls_it() -> None:
    """It was placed where the module's own code is."""
    ours, theirs = called(rows.Module, rows.Linear, twice=False), called(columns.Layer, columns.Dense, twice=True)
    (source,) = padiff.diff(ours, theirs, X).sources
    assert source.is_caused_by("taken"), source
    lines = Path(__file__).read_text().splitlines()
    assert source.candidate.location is not None
    assert "self.inner(x, x)" in lines[int(source.candidate.location.rpartition(":")[2]) - 1], source
