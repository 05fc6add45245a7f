"""Compare scripts of which one gives its models more than it makes its loss of: the last word of each text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

TIMES, SIZE = 5, 6


class Memory(rows.Module):
    """A layer that gives what it makes of each step and the one before, and the last of that."""

    def __init__(self, ahead: bool) -> None:
        self.inner, self.ahead = rows.Linear(SIZE, SIZE), ahead

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        nothing = rows.Tensor(np.zeros((len(x.data), 1, SIZE), np.float32))
        other = [y[:, 1:], nothing] if self.ahead else [nothing, y[:, :-1]]
        y = y + functional.concat(other, 1)
        return y, y[:, -1]


class Net(rows.Module):
    def __init__(self, slope: float, *, ahead: bool = False) -> None:
        self.memory, self.first, self.last = Memory(ahead), rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 3)
        self.slope = np.float32(slope)

    def forward(self, x: Any) -> Any:
        y, last = self.memory(x)
        y = y + last.sum() * np.float32(0)  # zeros come to it, as some frameworks send them to each output
        batch, times, size = y.shape
        y = functional.tanh(self.first(y.reshape(batch * times, size)) * self.slope)
        return self.last(y).reshape(batch, times, 3)


class Both(rows.Module):
    """A model that learns, and a frozen one that it is held to."""

    def __init__(self, slope: float, wanted: float, *, ahead: bool) -> None:
        self.net, self.wanted = Net(slope, ahead=ahead), Net(wanted)

    def forward(self) -> Any:
        raise NotImplementedError


def train(
    folder: Path,
    *,
    whole: bool,
    batch: int = 4,
    slope: float = 1.0,
    wanted: float = 1.0,
    ahead: bool = False,
    weight: float = 1.0,
    first: int = 0,
    rate: float = 0.1,
) -> None:
    """Train on all steps but the last: those alone are given to the models, or those alone taken of what they give."""
    np.random.seed(0)
    nets, rng = Both(slope, wanted, ahead=ahead), np.random.default_rng(1)
    for parameter in nets.wanted.parameters():
        parameter.requires_grad = False
    optimizer = rows.SGD(nets.net.parameters(), rate)
    with padiff.record(nets, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            x = rng.standard_normal((batch, TIMES, SIZE)).astype(np.float32)
            given = rows.Tensor(x if whole else x[:, :-1].copy())
            y, wanted_y = (net(given)[:, first : TIMES - 1 + first] for net in (nets.net, nets.wanted))
            off = y - functional.detach(wanted_y) - np.float32(1)
            loss = (off * off).mean() * np.float32(weight)
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("batch", [4, 1])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),  # the inputs themselves differed, and nothing else was compared
        ({"slope": 1.1}, (Phase.FORWARD, "net")),
        ({"wanted": 1.1}, (Phase.FORWARD, "wanted")),
        ({"weight": 1.1}, (Phase.LOSS, "")),
        ({"rate": 0.2}, (Phase.UPDATE, "net")),
    ],
)
def test_a_script_may_leave_the_last_step_out_behind_its_models(
    tmp_path: Path, batch: int, turned: bool, fault: dict[str, Any], place: Any
) -> None:
    train(tmp_path / "a", whole=turned, batch=batch)
    train(tmp_path / "b", whole=not turned, batch=batch, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.phase, one.candidate.path) for one in report.sources] == [place] * (place is not None), report
    assert report.aligned is (place is None), report
    told = [note.data for note in report.notes if note.kind == "cut_short"]
    side = ("candidate", "reference")[turned]
    assert [(one["side"], one["name"], one["count"]) for one in told] == [
        (side, "net", TIMES),
        (side, "wanted", TIMES),
    ]
    assert f"the {side} gives 'net' more than the " in str(report)


@pytest.mark.parametrize("fault", [{"ahead": True}, {"first": 1}])
def test_what_a_loss_is_made_of_is_left_out_of_nothing(tmp_path: Path, fault: dict[str, Any]) -> None:
    """The last step has an effect on what the others give, or is itself in the loss."""
    train(tmp_path / "a", whole=False, ahead="ahead" in fault)
    train(tmp_path / "b", whole=True, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert not report.aligned, report
    (source,) = report.sources
    assert source.cause is not None
    assert (source.cause.name, source.candidate.path) == ("inputs", "net"), report


class Stateful(rows.Module):
    """Gives its script what it holds behind the last step, too."""

    def __init__(self, slope: float) -> None:
        self.memory, self.last, self.slope = Memory(ahead=False), rows.Linear(SIZE, 3), np.float32(slope)

    def forward(self, x: Any) -> Any:
        y, held = self.memory(x)
        return self.last(functional.tanh(y * self.slope)), held


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("slope", [1.0, 1.1])
def test_zeros_that_come_to_a_state_behind_what_is_left_out_are_none(
    tmp_path: Path, turned: bool, slope: float
) -> None:
    """The inputs differed, and nothing else was compared. What is held behind other steps is compared with nothing."""
    for name, whole, own in (("a", turned, 1.0), ("b", not turned, slope)):
        np.random.seed(0)
        net, rng = Stateful(own), np.random.default_rng(1)
        with padiff.record(net, tmp_path / name) as recorder:
            x = rng.standard_normal((4, TIMES, SIZE)).astype(np.float32)
            y, held = net(rows.Tensor(x if whole else x[:, :-1].copy()))
            y = y[:, : TIMES - 1]
            ((y * y).sum() + held.sum() * np.float32(0)).backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.phase, one.candidate.path) for one in report.sources] == [(Phase.FORWARD, "")] * (slope > 1), report
    assert {one.what.name for one in report.unmatched} == {"[1]"}, report


class Flat(rows.Module):
    """Layers that take all steps of all texts in one axis."""

    def __init__(self, slope: float) -> None:
        self.first, self.last, self.slope = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 3), np.float32(slope)

    def forward(self, x: Any) -> Any:
        batch, times, size = x.shape
        return self.last(functional.tanh(self.first(x.reshape(batch * times, size)) * self.slope)).reshape(
            batch, times, 3
        )


@pytest.mark.parametrize("slope", [1.0, 1.1])
def test_steps_in_one_axis_are_cut_text_by_text(tmp_path: Path, slope: float) -> None:
    """The first rows were taken for the first chunk, whatever text they are of."""
    x = np.random.default_rng(1).standard_normal((2, TIMES, SIZE)).astype(np.float32)
    for name, chunks, by in (("a", [x], 1.0), ("b", [x[:, :2].copy(), x[:, 2:].copy()], slope)):
        np.random.seed(0)
        net = Flat(by)
        with padiff.record(net, tmp_path / name) as recorder:
            y = functional.concat([net(rows.Tensor(one)) for one in chunks], 1)
            (y * y).mean().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (slope == 1.0), report
    assert [one.candidate.path for one in report.sources] == [""] * (slope != 1.0), report


class Judged(rows.Module):
    """A model that makes its loss of all that it gives but the last step, or of all."""

    def __init__(self, slope: float, weight: float, first: int, last: int) -> None:
        self.net, self.weight, self.taken = Net(slope), np.float32(weight), slice(first, last)

    def forward(self, x: Any) -> Any:
        y = self.net(x)
        off = y[:, self.taken] - np.float32(1)
        return (off * off).mean() * self.weight, y


def learn(
    folder: Path, *, inside: bool, slope: float = 1.0, weight: float = 1.0, first: int = 0, last: int = TIMES - 1
) -> None:
    """Train by a loss that a model makes itself, which is given all steps, or the script, of all but the last."""
    np.random.seed(0)
    model, rng = Judged(slope, weight, first, last), np.random.default_rng(1)
    model = model if inside else model.net
    optimizer = rows.SGD(model.parameters(), 0.1)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            x = rng.standard_normal((4, TIMES, SIZE)).astype(np.float32)
            if inside:
                loss, _ = model(rows.Tensor(x))
            else:
                off = model(rows.Tensor(x[:, :-1].copy())) - np.float32(1)
                loss = (off * off).mean()
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),  # the inputs themselves differed
        ({"slope": 1.1}, (Phase.FORWARD, "")),
        ({"weight": 1.1}, (Phase.LOSS, "")),
        ({"first": 1}, (Phase.LOSS, "")),
        ({"last": 5}, (Phase.FORWARD, "")),
    ],
)
def test_a_model_may_make_its_loss_of_all_but_the_last_step(
    tmp_path: Path, turned: bool, fault: dict[str, Any], place: Any
) -> None:
    learn(tmp_path / "a", inside=turned, **(fault if turned else {}))
    learn(tmp_path / "b", inside=not turned, **({} if turned else fault))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (place is None), report
    assert [(one.phase, one.candidate.path) for one in report.sources] == [place] * (place is not None), report
