"""Tell two faults of one call's code apart: neither hides the other, or lends it its cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, functional, rows

CENTRES = np.linspace(0, 2, 6, dtype=np.float32)


class Bumps(rows.Module):
    """What layers make of distances to some centres, added up."""

    def __init__(self) -> None:
        self.first, self.last, self.centres = rows.Linear(6, 4), rows.Linear(4, 4), rows.Tensor(CENTRES)

    def forward(self, x: Any) -> Any:
        apart = x - self.centres
        return self.last(self.first((apart * apart * -3.125).exp()).tanh()).sum(0)


class BumpsOneByOne(columns.Layer):
    """The same, centre by centre: of another width no operation is found."""

    def __init__(self, fault: str) -> None:
        self.first, self.last, self.fault = columns.Dense(6, 4), columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        width = 0.5 if "width" in self.fault else 0.4
        apart = [(x - float(centre)) / width for centre in CENTRES]
        y = self.last(self.first(functional.concat([(one * one * -0.5).exp() for one in apart])).tanh())
        return y.mean(0) if "mean" in self.fault else y.sum(0)


@pytest.mark.parametrize("fault", ["", "width", "mean", "width and mean"])
def test_lines_without_a_cause_are_no_place_of_one_elsewhere(fault: str) -> None:
    """Both were one source, in two places, with the cause of the last line."""
    x = np.random.default_rng(0).uniform(0, 2, (5, 1)).astype(np.float32)
    report = padiff.diff(Bumps(), BumpsOneByOne(fault), x)
    count = len(fault.split(" and ")) if fault else 0
    assert report.aligned is not bool(fault), str(report)
    assert len(report.sources) == count, str(report)
    assert f"not aligned: {count} source{'s' * (count > 1)} (" in str(report) or not fault, str(report)
    causes = {str(one.cause) for one in report.sources if one.cause is not None}
    said = "called as sum(_, 0) in the reference, as mean(_, 0) in the candidate"
    assert causes == ({said} if "mean" in fault else set()), str(report)


class Gated(rows.Module):
    """A gate in one matrix, with what a layer beside it makes of the same."""

    def __init__(self) -> None:
        self.pre, self.beside = rows.LayerNorm(4), rows.Linear(4, 4)
        self.up, self.norm, self.down = rows.Linear(4, 8), rows.LayerNorm(4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        h = self.pre(x)
        both = functional.gelu(self.up(h))
        return x + self.down(both[:, :4] * (self.norm(both[:, 4:]) + self.beside(h)))


class GatedApart(columns.Layer):
    """The same with two matrices."""

    def __init__(self, fault: str) -> None:
        self.pre, self.beside = columns.LayerNormalization(4), columns.Dense(4, 4)
        self.gate, self.up, self.down = columns.Dense(4, 4), columns.Dense(4, 4), columns.Dense(4, 4)
        self.norm, self.fault = columns.LayerNormalization(4, 1e-3 if "eps" in fault else 1e-5), fault

    def forward(self, x: Any) -> Any:
        h = self.pre(x)
        beside = self.beside(functional.detach(h) if "detach" in self.fault else h)
        return x + self.down(functional.gelu(self.gate(h)) * (self.norm(functional.gelu(self.up(h))) + beside))


@pytest.mark.parametrize("fault", ["", "eps", "detach", "eps and detach"])
def test_what_code_cuts_off_follows_from_no_fault_inside(fault: str) -> None:
    """A norm that sends another gradient, which nothing puts right behind it, hid that the code detaches a tensor."""
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    report = padiff.diff(Gated(), GatedApart(fault), x)
    assert report.aligned is not bool(fault), str(report)
    wanted = {"eps": (Phase.FORWARD, "norm"), "detach": (Phase.BACKWARD, "")}
    told = [(one.phase, one.candidate.path) for one in report.sources]
    assert told == [place for name, place in wanted.items() if name in fault], str(report)
    assert ("detach(_) in the candidate only" in str(report)) is ("detach" in fault), str(report)


def mixed(base: Any, linear: Any, faults: str) -> Any:
    """Return a model in which two blocks and the code around them take one tensor."""

    class Gate(base):
        def __init__(self) -> None:
            self.layer = linear(6, 6)

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            return (functional.sigmoid(y) if "sigmoid" in faults else functional.tanh(y)) * x

    class Mix(base):
        def __init__(self) -> None:
            self.layer = linear(6, 6)

        def forward(self, x: Any) -> Any:
            return functional.tanh(self.layer(x)) * (functional.detach(x) if "detach" in faults else x)

    class Model(base):
        def __init__(self) -> None:
            self.first, self.gate, self.mix, self.head = linear(6, 6), Gate(), Mix(), linear(6, 3)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            mixed = self.gate(x) + self.mix(x) + x
            return self.head(mixed * 0.5 if "half" in faults else mixed)

    return Model()


@pytest.mark.parametrize(
    ("faults", "sources"),
    [
        ("", []),
        ("detach", [("backward", "mix")]),
        ("sigmoid", [("forward", "gate")]),
        ("half", [("forward", "")]),
        ("sigmoid and detach", [("forward", "gate"), ("backward", "mix")]),
        ("half and detach", [("forward", ""), ("backward", "mix")]),
    ],
)
def test_a_gradient_is_told_beside_what_is_wrong_with_others_that_take_the_tensor(
    faults: str, sources: list[tuple[str, str]]
) -> None:
    """What one of them gives wrongly, or the code around, excused the gradient that each sends to what all take."""
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    report = padiff.diff(mixed(rows.Module, rows.Linear, ""), mixed(columns.Layer, columns.Dense, faults), x)
    assert [(str(one.phase), one.candidate.path) for one in report.sources] == sources, str(report)
