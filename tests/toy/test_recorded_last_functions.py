"""Compare scripts of which one applies by itself the function that the other's model ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

SIZE, CLASSES, BATCH = 6, 5, 4

FUNCTIONS = {"softmax": functional.softmax, "sigmoid": functional.sigmoid}
WRONG = {"softmax": lambda x: functional.softmax(x, 0), "sigmoid": lambda x: functional.sigmoid(x * np.float32(1.1))}
"""Functions by which a model ends wrongly."""


class Net(rows.Module):
    def __init__(self, last: Any, slope: float, *, turned: bool = False, flat: bool = False) -> None:
        self.first, self.head = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, CLASSES)
        self.last, self.slope, self.turned, self.flat = last, np.float32(slope), turned, flat

    def forward(self, x: Any) -> Any:
        y = functional.tanh(self.first(x) * self.slope)
        y = self.head(y.reshape(3 * BATCH, SIZE)).reshape(3, BATCH, CLASSES) if self.flat else self.head(y)
        y = y if self.last is None else self.last(y)
        return y.transpose(1, 0, 2) if self.turned else y


class Both(rows.Module):
    """A model that learns, and a frozen one that it is held to."""

    def __init__(self, *nets: Net) -> None:
        self.net, self.wanted = nets

    def forward(self) -> Any:
        raise NotImplementedError


def train(
    folder: Path,
    function: str,
    *,
    inside: bool,
    slope: float = 1.0,
    wanted: float = 1.0,
    wrong: bool = False,
    again: bool = False,
    offset: float = 0.0,
    rate: float = 0.1,
    turned: bool = False,
    flat: bool = False,
) -> None:
    """Train on what is made of the models' scores, ``inside`` of them or by the script."""
    np.random.seed(0)
    by = FUNCTIONS[function]
    last = WRONG[function] if wrong else by if inside else None
    nets, rng = (
        Both(Net(last, slope, turned=turned, flat=flat), Net(by if inside else None, wanted)),
        np.random.default_rng(1),
    )
    for parameter in nets.wanted.parameters():
        parameter.requires_grad = False
    optimizer = rows.SGD(nets.net.parameters(), rate)
    with padiff.record(nets, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            given = rows.Tensor(rng.standard_normal((3, BATCH, SIZE)).astype(np.float32) * 3)
            y, target = nets.net(given), functional.detach(nets.wanted(given))
            y = y.transpose(1, 0, 2) if turned else y
            y, target = (y, target) if inside and not again else (by(y), target if inside else by(target))
            off = y - np.float32(offset) - np.square(target.data)
            loss = (off * off).mean()
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),  # what the models give was a source
        ({"turned": True}, None),
        ({"flat": True}, None),
        ({"flat": True, "slope": 1.1}, (Phase.FORWARD, "net")),
        ({"slope": 1.1}, (Phase.FORWARD, "net")),
        ({"wanted": 1.1}, (Phase.FORWARD, "wanted")),
        ({"offset": 0.01}, (Phase.LOSS, "")),
        ({"rate": 0.2}, (Phase.UPDATE, "net")),
    ],
)
def test_a_script_may_apply_what_the_other_model_ends_with(
    tmp_path: Path, function: str, other: bool, fault: dict[str, Any], place: Any
) -> None:
    train(tmp_path / "a", function, inside=other)
    train(tmp_path / "b", function, inside=not other, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.phase, one.candidate.path) for one in report.sources] == [place] * (place is not None), report
    assert report.aligned is (place is None), report
    told = {tuple(note.data.values()) for note in report.notes if note.kind == "last_function"}
    side = ("candidate", "reference")[other]
    assert (side, "net", function) in told
    assert told <= {(side, "net", function), (side, "wanted", function)}
    assert f"'net' of the {side} ends with {function}" in str(report)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("fault", [{"inside": True, "wrong": True}, {"inside": True, "again": True}])
def test_a_model_that_ends_otherwise_is_told(tmp_path: Path, function: str, fault: dict[str, Any]) -> None:
    """Another function, or one that the script applies once more."""
    train(tmp_path / "a", function, inside=False)
    train(tmp_path / "b", function, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert not report.aligned
    assert [(one.phase, one.candidate.path) for one in report.sources] == [(Phase.FORWARD, "net")], report
