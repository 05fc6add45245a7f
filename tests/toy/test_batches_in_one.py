"""Run a network once on two batches in one, and once on each: guidance without a classifier, and towers that share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
LABELS = np.array([1, 3])
NONE = 5


class Block(rows.Module):
    def __init__(self) -> None:
        self.norm, self.up, self.down = rows.LayerNorm(4), rows.Linear(4, 6), rows.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Guided(rows.Module):
    """Run the blocks on both halves at once, with a label and without one, and go further away from the latter."""

    def __init__(self) -> None:
        self.label, self.blocks = rows.Embedding(6, 4), rows.Sequential(Block(), Block())
        self.head = rows.Linear(4, 3)

    def forward(self, x: Any, labels: Any) -> Any:
        both = self.label(rows.Tensor(np.concatenate([labels.data, np.full_like(labels.data, NONE)])))
        y = self.head(self.blocks(F.concat([x, x], 0) + both))
        return y[2:] + (y[:2] - y[2:]) * 4.0


class Port(columns.Layer):
    def __init__(self, fault: str) -> None:
        self.second, self.first = columns.Dense(6, 4), columns.Dense(4, 6)
        self.norm, self.fault = columns.LayerNormalization(4), fault

    def forward(self, x: Any) -> Any:
        y = self.first(self.norm(x))
        return x + self.second(F.silu(y) if self.fault == "silu" else F.gelu(y))


class Twice(columns.Layer):
    """The same, run without a label first, then with it."""

    def __init__(self, fault: str = "") -> None:
        self.out, self.table, self.fault = columns.Dense(4, 3), columns.Embed(6, 4), fault
        self.stack = columns.Stack(Port(""), Port(fault))

    def once(self, x: Any, labels: Any) -> Any:
        return self.out(self.stack(x + self.table(labels)))

    def forward(self, x: Any, labels: Any) -> Any:
        none = columns.Tensor(np.full_like(labels.data, 0 if self.fault == "none" else NONE))
        without, given = self.once(x, none), self.once(x, labels)
        return given * (5.0 if self.fault == "scale" else 4.0) - without * (4.0 if self.fault == "scale" else 3.0)


FAULTS = {
    "": set(),
    "silu": {("stack.1", "input 'x' of second")},
    "none": {("", "input 'indices' of table")},
    "scale": {("", "output")},
}


CAUSES = {"silu": "silu (silu) in the candidate", "scale": "mul(_, 5.0)", "none": "None", "": ""}


@pytest.mark.parametrize("operations", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_placed_where_one_side_runs_both_batches_in_one(fault: str, operations: bool) -> None:
    """Nothing inside was compared, since all of it had another shape: each fault was one of the output.

    Nor did the search for causes know of the batches: it saw none, or ended in an error of the framework.
    """
    report = padiff.diff(Guided(), Twice(fault), (X, LABELS), operations=operations)
    places = {("stack.1.silu", "output")} if operations and fault == "silu" else FAULTS[fault]
    assert {(one.candidate.path, str(one.what)) for one in report.sources} == places, str(report)
    assert report.aligned == (not fault), str(report)
    if not operations:
        assert all(CAUSES[fault] in str(one.cause) for one in report.sources), str(report)


class Steps(rows.Module):
    """Run a recurrence, and the head once on all steps of all sequences."""

    def __init__(self) -> None:
        self.step, self.head = rows.Linear(4, 4), rows.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        h, found = x, []
        for _ in range(3):
            h = F.tanh(self.step(h))
            found.append(h.reshape(2, 1, 4))
        return self.head(F.concat(found, 1).reshape(6, 4))


class HeadOfEach(columns.Layer):
    """The same with the head in each step."""

    def __init__(self, fault: str = "") -> None:
        self.out, self.cell, self.fault = columns.Dense(4, 3), columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        h, found = x, []
        for number in range(3):
            h = F.tanh(self.cell(h))
            y = self.out(h + 1.0 if self.fault and number == 1 else h)
            found.append(y.reshape(2, 1, 3))
        return F.concat(found, 1).reshape(6, 3)


@pytest.mark.parametrize("fault", ["", "shifted"])
def test_what_runs_on_all_steps_at_once_is_read_step_by_step(fault: str) -> None:
    """The first third of the rows was taken for the first step: all that the head takes differed."""
    report = padiff.diff(Steps(), HeadOfEach(fault), (X,))
    assert [(one.candidate.path, str(one.what), one.candidate.call) for one in report.sources] == (
        [("", "input 'x' of out", 0)] if fault else []
    ), str(report)
    assert report.aligned == (not fault)


class Alike(rows.Module):
    """Run a norm and a layer on each of two inputs, and compare what they give."""

    def __init__(self) -> None:
        self.norm, self.layer, self.head = rows.LayerNorm(4), rows.Linear(4, 6), rows.Linear(6, 3)

    def forward(self, a: Any, b: Any) -> Any:
        first, second = self.layer(self.norm(a)), self.layer(self.norm(b))
        return self.head((first * second).tanh())


class AlikeAtOnce(columns.Layer):
    """The same, run once on both."""

    def __init__(self, fault: str) -> None:
        self.head, self.layer, self.fault = columns.Dense(6, 3), columns.Dense(4, 6), fault
        self.norm = columns.LayerNormalization(4, 1e-3 if fault == "eps" else 1e-5)

    def forward(self, a: Any, b: Any) -> Any:
        both = self.layer(self.norm(F.concat([a, b], 0)))
        return self.head((both[:2] * both[2:] * (0.5 if self.fault == "scale" else 1.0)).tanh())


@pytest.mark.parametrize("fault", ["", "eps", "scale"])
def test_a_setting_of_what_runs_on_both_batches_is_the_cause(fault: str) -> None:
    """All operations of the code around were told as the cause, or none; beside another such norm it was one more."""
    given = np.random.default_rng(0).standard_normal((2, 2, 4)).astype(np.float32)
    report = padiff.diff(Alike(), AlikeAtOnce(fault), tuple(given))
    wanted = {
        "eps": "eps: 1e-05 in the reference, 0.001 in the candidate",
        "scale": "mul(_, 0.5) in the candidate only",
    }
    assert [str(one.cause) for one in report.sources] == ([wanted[fault]] if fault else []), str(report)
    assert report.aligned == (not fault), str(report)
