"""Hand a running sum from call to call, as flows do their log-determinants, where the other side adds up outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)


class Step(rows.Module):
    """One step of a flow, and by how much it stretches."""

    def __init__(self) -> None:
        self.scale, self.shift = rows.Linear(4, 4), rows.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        log = F.tanh(self.scale(x))
        return x * F.sigmoid(log) + self.shift(x), (log * 0.5).mean(1)


class Flow(rows.Module):
    def __init__(self) -> None:
        self.steps = rows.ModuleList(Step(), Step(), Step())

    def forward(self, x: Any) -> Any:
        total = 0.0
        for step in self.steps:
            x, more = step(x)
            total = more + total
        return x, total


class Carrying(columns.Layer):
    """The same, which takes the sum so far."""

    def __init__(self, fault: str) -> None:
        self.moved, self.stretch, self.fault = columns.Dense(4, 4), columns.Dense(4, 4), fault

    def forward(self, x: Any, total: Any) -> Any:
        log = F.tanh(self.stretch(x))
        total = total + (log * (0.6 if self.fault == "sum" else 0.5)).mean(1)
        y = x * (F.tanh(log) if self.fault == "value" else F.sigmoid(log)) + self.moved(x)
        return y + total.reshape(3, 1) if self.fault == "leak" else y, total


class Port(columns.Layer):
    def __init__(self, *faults: str) -> None:
        self.steps = columns.Layers(*map(Carrying, faults))

    def forward(self, x: Any) -> Any:
        total = columns.Tensor(np.zeros(3, np.float32))
        for step in self.steps:
            x, total = step(x, total)
        return x, total


@pytest.mark.parametrize(
    ("fault", "path", "cause"),
    [
        ("value", "steps.1", "kind: sigmoid (sigmoid) in the reference, tanh (tanh) in the candidate"),
        ("sum", "", "None"),
        ("leak", "steps.1", "add(_, _), reshape(_, 3, 1), add(_, _) in the candidate only"),
    ],
)
def test_one_fault_beside_a_sum_that_calls_hand_on_is_one_source(fault: str, path: str, cause: str) -> None:
    """Each later call gave another sum than its counterpart, and so did the model, fed with what these give."""
    assert padiff.diff(Flow(), Port("", "", ""), X).aligned
    report = padiff.diff(Flow(), Port("", fault, ""), X)
    assert [one.candidate.path for one in report.sources] == [path], str(report)
    assert [str(one.cause) for one in report.sources] == [cause], str(report)


class Unused(Flow):
    """A flow that gives no sum."""

    def forward(self, x: Any) -> Any:
        return super().forward(x)[0]


class UnusedPort(Port):
    def forward(self, x: Any) -> Any:
        return super().forward(x)[0]


@pytest.mark.parametrize("fault", ["", "sum"])
def test_a_sum_that_nothing_is_made_of_is_noted(fault: str) -> None:
    """No output tells whether it agrees: it was compared nowhere, and a wrong one was aligned without a word."""
    report = padiff.diff(Unused(), UnusedPort("", fault, ""), X)
    (note,) = [one for one in report.notes if one.kind == "carried"]
    assert report.aligned, str(report)
    assert note.data["modules"] == ["steps.0", "steps.1", "steps.2"], str(report)
    assert not [one for one in padiff.diff(Flow(), Port("", "", ""), X).notes if one.kind == "carried"]


class Timed(rows.Module):
    """A block that is scaled by the time, whose activation it applies itself, or is given."""

    def __init__(self, *, activates: bool) -> None:
        self.time, self.value, self.activates = rows.Linear(5, 4), rows.Linear(4, 4), activates

    def forward(self, x: Any, time: Any) -> Any:
        return x + F.tanh(self.value(x)) * self.time(F.silu(time) if self.activates else time)


class Unet(rows.Module):
    def __init__(self, *, inside: bool) -> None:
        self.embed, self.inside = rows.Linear(4, 5), inside
        self.blocks = rows.ModuleList(*(Timed(activates=inside) for _ in range(3)))

    def forward(self, x: Any) -> Any:
        time = self.embed(x)
        time = time if self.inside else F.silu(time)
        for block in self.blocks:
            x = block(x, time)
        return x


class TimedPort(columns.Layer):
    def __init__(self, act: Any) -> None:
        self.scale, self.inner, self.act = columns.Dense(5, 4), columns.Dense(4, 4), act

    def forward(self, x: Any, time: Any) -> Any:
        return self.scale(self.act(time) if self.act else time) * F.tanh(self.inner(x)) + x


class UnetPort(columns.Layer):
    def __init__(self, act: Any, *, inside: bool) -> None:
        self.first, self.act = columns.Dense(4, 5), None if inside else act
        self.parts = columns.Layers(*(TimedPort(act if inside else None) for _ in range(3)))

    def forward(self, x: Any) -> Any:
        time = self.first(x)
        time = self.act(time) if self.act else time
        for part in self.parts:
            x = part(x, time)
        return x


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("inside", [False, True])
def test_blocks_are_given_what_the_other_side_makes_inside_of_each(phase: str, inside: bool) -> None:
    """Forward alone, and where no gradient comes (an average's copy), each block and the code around was a source."""
    reference = Unet(inside=not inside)
    report = padiff.diff(reference, UnetPort(F.silu, inside=inside), X, phase=phase)
    assert report.aligned, str(report)
    report = padiff.diff(reference, UnetPort(lambda x: F.silu(x) * 1.1, inside=inside), X, phase=phase)
    assert len({one.candidate.class_name for one in report.sources}) == 1, str(report)


@pytest.mark.parametrize("phase", ["both", "forward"])
def test_what_blocks_are_given_is_wrong_where_it_is_made(phase: str) -> None:
    """It was told at the block that hands it on."""
    report = padiff.diff(Unet(inside=True), UnetPort(F.gelu, inside=False), X, phase=phase)
    told = [(one.candidate.path, str(one.cause)) for one in report.sources]
    assert told == [("", "kind: silu (silu) in the reference, gelu (gelu) in the candidate")], str(report)
