"""Which of several parameters with rows in another order stay in it: those whose order the code shows that it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import functional as F
from padiff.testing.toy import rows

X = np.random.default_rng(0).standard_normal((3, 5, 8)).astype(np.float32)
HIDDEN = np.array([5, 0, 3, 2, 4, 1])


def compared(folder: Path, net: Any, port: Any) -> Any:
    """Return the report on two recorded runs of the same step."""
    for model, name in ((net, "a"), (port, "b")):
        with padiff.record(model, folder / name) as recorder:
            made = model(rows.Tensor(X.copy()))
            (made * X[..., : made.shape[-1]]).sum().backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


class Deep(rows.Module):
    """Blocks on one stream, and what tells classes from it."""

    def __init__(self) -> None:
        self.into = rows.Linear(8, 8)
        self.first, self.second = (
            rows.ModuleList(*(rows.Linear(*size) for _ in range(3))) for size in ((8, 6), (6, 8))
        )
        self.out = rows.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.into(x)
        for first, second in zip(self.first, self.second, strict=True):
            x = x + second(F.relu(first(x)))
        return self.out(x)


def reorder(layer: Any, order: Any, *, columns: Any = slice(None)) -> None:
    layer.weight.data[:], layer.bias.data[:] = layer.weight.data[order][:, columns], layer.bias.data[order]


ALL = slice(None)
STREAM = np.array([6, 2, 7, 0, 4, 1, 3, 5])


def shuffled(net: Deep) -> Deep:
    """Return the same with the channels of each block shuffled, and those of the stream."""
    port = Deep()
    for ours, theirs in zip(net.parameters(), port.parameters(), strict=True):
        theirs.data[:] = ours.data
    for number, (first, second) in enumerate(zip(port.first, port.second, strict=True)):
        order = np.roll(HIDDEN, number)
        reorder(first, order, columns=STREAM)
        reorder(second, STREAM, columns=order)
    reorder(port.into, STREAM)
    reorder(port.out, ALL, columns=STREAM)
    return port


def classes(port: Deep) -> None:
    reorder(port.out, np.roll(np.arange(5), 1))


def other_hidden(port: Deep) -> None:
    reorder(port.second[1], ALL, columns=HIDDEN)


def not_in_stream(port: Deep) -> None:
    reorder(port.second[2], np.argsort(STREAM))


@pytest.mark.parametrize("transfer", [False, True], ids=["loaded", "copied"])
@pytest.mark.parametrize(
    ("fault", "places"),
    [(None, set()), (classes, {"out"}), (other_hidden, {"first.1", "second.1"}), (not_in_stream, {""})],
    ids=["right", "classes", "hidden", "stream"],
)
def test_one_order_that_code_does_not_take_leaves_the_others(
    fault: Callable[[Deep], None] | None, places: set[str], transfer: bool
) -> None:
    net = Deep()
    port = shuffled(net)
    if fault is not None:
        fault(port)
    report = padiff.diff(net, port, X, transfer=transfer)
    assert {finding.candidate.path for finding in report.sources} == (set() if transfer else places)
    assert report.aligned is (transfer or not places)
    if fault is not_in_stream and not transfer:
        assert str(report.sources[0].cause).startswith("right where the rows of second.2 are in another order")
    elif not transfer:
        assert any(note.kind == "reordered" for note in report.notes)


@pytest.mark.parametrize(
    ("fault", "places"), [(classes, {"out"}), (other_hidden, {"first.1", "second.1"})], ids=["classes", "hidden"]
)
def test_recorded_runs_leave_the_other_orders(fault: Callable[[Deep], None], places: set[str], tmp_path: Path) -> None:
    net = Deep()
    port = shuffled(net)
    fault(port)
    report = compared(tmp_path, net, port)
    assert {finding.candidate.path for finding in report.sources} == places


def test_an_order_that_the_same_code_takes_before_is_no_fault_of_recorded_runs(tmp_path: Path) -> None:
    class Block(rows.Module):
        scale = 1.0

        def __init__(self) -> None:
            self.first, self.second = rows.Linear(8, 6), rows.Linear(6, 8)

        def forward(self, x: Any) -> Any:
            return x + self.second(F.relu(self.first(x)) * self.scale)

    net, port = (rows.Sequential(Block(), Block()) for _ in range(2))
    for ours, theirs in zip(net.parameters(), port.parameters(), strict=True):
        theirs.data[:] = ours.data
    for block in port:
        reorder(block.first, HIDDEN)
        reorder(block.second, ALL, columns=HIDDEN)
    port[1].scale = 1.5
    assert [finding.candidate.path for finding in compared(tmp_path, net, port).sources] == ["1"]


@pytest.mark.parametrize("given", [False, True], ids=["alone", "reordered inputs"])
def test_what_a_model_gives_is_in_the_order_that_its_user_sees(given: bool) -> None:
    net, port = ([rows.Linear(8, 6), rows.Linear(6, 5)] if given else [rows.Linear(8, 5)] for _ in range(2))
    for ours, theirs in zip(net, port, strict=True):
        theirs.weight.data[:], theirs.bias.data[:] = ours.weight.data, ours.bias.data
    x = X[..., ::-1].copy() if given else X
    if given:
        reorder(port[0], ALL, columns=slice(None, None, -1))
    models = [rows.Sequential(*some) if given else some[0] for some in (net, port)]
    assert padiff.diff(*models, X, candidate_inputs=x, transfer=False).aligned
    reorder(port[-1], np.roll(np.arange(5), 1))
    report = padiff.diff(*models, X, candidate_inputs=x, transfer=False)
    assert not report.aligned
    assert {str(finding.cause) for finding in report.sources} == {
        "the reference's, with its rows in another order (4, 0, 1, 2, 3, ...)"
    }


def test_biases_tell_rows_apart_that_are_the_same() -> None:
    net = Deep()
    net.first[0].weight.data[1:4] = net.first[0].weight.data[0]
    assert padiff.diff(net, shuffled(net), X, transfer=False).aligned


class Table(rows.Module):
    """A table of positions of which few are used, and a layer of which nothing comes, or that is never called."""

    back = called = False

    def __init__(self) -> None:
        self.table, self.out, self.spare = rows.parameter(9, 8), rows.Linear(8, 3), rows.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        if self.called:
            self.spare(x)
        return self.out(F.tanh(x + (self.table[::-1] if self.back else self.table)[:5]))


BACK = np.arange(9)[::-1]
UNUSED = np.array([0, 1, 2, 3, 4, 8, 7, 6, 5])


@pytest.mark.parametrize("called", [False, True], ids=["uncalled", "called"])
@pytest.mark.parametrize("recorded", [False, True], ids=["live", "recorded"])
@pytest.mark.parametrize(
    ("order", "back", "spare", "right"),
    [(BACK, True, ALL, True), (BACK, False, ALL, False), (UNUSED, False, ALL, False), (ALL, False, STREAM, False)],
    ids=["read back", "not read back", "unused", "spare"],
)
def test_an_order_of_rows_that_nothing_uses_is_borne_out_by_nothing(
    order: Any, back: bool, spare: Any, right: bool, recorded: bool, called: bool, tmp_path: Path
) -> None:
    net, port = Table(), Table()
    for ours, theirs in zip(net.parameters(), port.parameters(), strict=True):
        theirs.data[:] = ours.data
    net.called = port.called = called
    port.table.data[:], port.back = net.table.data[order], back
    reorder(port.spare, spare)
    report = compared(tmp_path, net, port) if recorded else padiff.diff(net, port, X, transfer=False)
    assert report.aligned is right
