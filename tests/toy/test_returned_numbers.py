"""What a model returns beside tensors is compared, too: classes in a list, a metric as a float, boxes in numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
RUNS = itertools.count()


@pytest.fixture(autouse=True)
def seeded() -> None:
    np.random.seed(0)


class Net(rows.Module):
    def __init__(self, said: Callable[[Any], Any]) -> None:
        self.body, self.head, self.said = rows.Linear(4, 5), rows.Linear(5, 3), said

    def forward(self, x: Any) -> Any:
        y = self.head(F.relu(self.body(x)))
        return {"logits": y, **self.said(y.data)}


class Port(columns.Layer):
    def __init__(self, said: Callable[[Any], Any]) -> None:
        self.first, self.last, self.said = columns.Dense(4, 5), columns.Dense(5, 3), said

    def forward(self, x: Any) -> Any:
        y = self.last(F.relu(self.first(x)))
        return {"logits": y, **self.said(y.data)}


def classes(y: Any) -> Any:
    return {"classes": y.argmax(1).tolist(), "sure": [bool(one) for one in y[:, 0] > y[:, 0].mean()]}


def metric(y: Any) -> Any:
    return {"metric": float(np.exp(y).sum()), "count": len(y)}


def labels(y: Any) -> Any:
    return {"labels": ["abc"[one] for one in y.argmax(1)], "best": "abc"[y[0].argmax()]}


def boxes(y: Any) -> Any:
    return {"boxes": (y * 4, y[y[:, 0] > y[:, 0].mean()])}


RIGHT = {
    "classes": (classes, lambda y: {"classes": [*np.argsort(-y, 1)[:, 0]], "sure": y[:, 0] > np.mean(y[:, 0])}),
    "metric": (metric, lambda y: {"metric": np.float32(np.exp(y).mean() * y.size), "count": np.int64(y.shape[0])}),
    "nothing": (lambda y: {"left": [], "sum": 0.0}, lambda y: {"left": (), "sum": float(y.sum() - y[::-1].sum())}),
    "labels": (labels, lambda y: {"labels": tuple(map("abc".__getitem__, y.argmax(1))), "best": labels(y)["best"]}),
    "boxes": (boxes, lambda y: {"boxes": [(y + y) * 2, np.stack([one for one in y if one[0] > y.mean(0)[0]])]}),
}
WRONG = {
    "classes": (classes, lambda y: {**classes(y), "classes": y.argmin(1).tolist()}, ["['classes']"]),
    "flags": (classes, lambda y: {**classes(y), "sure": [bool(one) for one in y[:, 0] < y[:, 0].mean()]}, ["['sure']"]),
    "metric": (metric, lambda y: {"metric": float(np.exp(y).sum()) * 1.01, "count": 7}, ["['metric']", "['count']"]),
    "labels": (labels, lambda y: {**labels(y), "labels": ["abc"[one] for one in y.argmin(1)]}, ["['labels']"]),
    "word": (labels, lambda y: {**labels(y), "best": "zero"}, ["['best']"]),
    "little": (metric, lambda y: {"metric": float(np.exp(y).sum()) * 1.00005, "count": len(y)}, ["['metric']"]),
    "some": (lambda y: {"left": []}, lambda y: {"left": [1]}, ["['left']"]),
    "fewer": (boxes, lambda y: {"boxes": (y * 4, y[y[:, 0] > y[:, 0].mean()][1:])}, ["['boxes'][1]"]),
}


@pytest.mark.parametrize("phase", ["both", "forward"])
@pytest.mark.parametrize("case", RIGHT)
def test_numbers_that_are_made_otherwise_are_right(case: str, phase: str) -> None:
    ours, theirs = RIGHT[case]
    report = padiff.diff(Net(ours), Port(theirs), X, phase=phase)
    assert report.aligned, str(report)
    assert not report.notes, str(report)


@pytest.mark.parametrize("case", WRONG)
def test_other_numbers_are_the_source(case: str) -> None:
    """0.4 compared no more than tensors: a port that returned other classes was aligned."""
    ours, theirs, paths = WRONG[case]
    report = padiff.diff(Net(ours), Port(theirs), X)
    assert [(one.what.kind, one.what.name) for one in report.sources] == [("number", one) for one in paths], str(report)


def test_behind_a_fault_they_are_those_of_the_reference() -> None:
    """A candidate that is wrong further up returns other numbers, and these are no fault of their own."""
    port = Port(classes)
    port.first.forward = lambda x: F.linear(x, port.first.kernel, port.first.offset) * np.float32(1.5)
    report = padiff.diff(Net(classes), port, X)
    assert [one.candidate.path for one in report.sources] == ["first"], str(report)


def test_what_the_reference_does_not_give_twice_is_no_measure() -> None:
    report = padiff.diff(*(model(lambda y: {"at": next(RUNS)}) for model in (Net, Port)), X)
    assert report.aligned, str(report)
    assert any("['at'] is another one in each run" in note.text for note in report.notes), str(report)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_what_chance_makes_is_no_measure(p: float) -> None:
    """A dropout in code of its own lets a metric differ, as it does from seed to seed."""

    def said(y: Any) -> Any:
        return {"metric": float((y * (np.random.random_sample(y.shape) >= p)).sum())}

    report = padiff.diff(Net(said), Port(lambda y: {"metric": said(y[::-1])["metric"] if p else float(y.sum())}), X)
    assert report.aligned, str(report)
    assert len([note for note in report.notes if "in each run" in note.text]) == bool(p), str(report)


def test_what_one_side_alone_returns_is_told() -> None:
    report = padiff.diff(Net(metric), Port(lambda y: {"count": len(y), "more": 1, "text": "b"}), X)
    assert report.aligned, str(report)
    assert [note.text.partition(":")[0] for note in report.notes] == [
        "the reference alone returns numbers at ['metric']",
        "the candidate alone returns numbers at ['more']",
    ]


def test_a_users_own_rule_judges_floats() -> None:
    models = Net(metric), Port(lambda y: {"metric": float(np.exp(y).sum()) * 1.01, "count": len(y)})
    assert padiff.diff(*models, X, tolerance={"atol": 0.0, "rtol": 0.1}).aligned
    assert not padiff.diff(*models, X, tolerance={"atol": 0.0, "rtol": 0.001}).aligned


REMOTE = """
from padiff.testing.toy import rows


class Net(rows.Module):
    def __init__(self, more):
        self.body, self.more = rows.Linear(4, 3), more

    def forward(self, x):
        y = self.body(x)
        return y, (y.data + self.more).argmax(1).tolist(), len(x.data) + self.more


def build(more):
    return Net(more)
"""


@pytest.mark.parametrize("more", [0, 1])
def test_models_of_other_processes_return_them_too(more: int, tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(REMOTE)
    site = Path(__file__).with_name("site")
    with (
        padiff.remote("counted:build", args=(0,), path=[tmp_path, site]) as reference,
        padiff.remote("counted:build", args=(more,), path=[tmp_path, site]) as candidate,
    ):
        report = padiff.diff(reference, candidate, X)
    assert [one.what.name for one in report.sources] == ["[2]"] * more, str(report)
