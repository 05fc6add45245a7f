"""Compare models that compute in another order of axes: (time, batch, features) for (batch, time, features)."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

BATCH_AND_TIME = {"unlike": (3, 5), "alike": (4, 4)}
"""Shapes may tell where the batch is, or not."""
sizes = pytest.mark.parametrize("size", BATCH_AND_TIME.values(), ids=BATCH_AND_TIME)


def sequences(size: tuple[int, int], width: int = 6) -> Any:
    return np.random.default_rng(0).standard_normal((*size, width), dtype=np.float32)


class BatchFirst(torch.nn.Module):
    """Give an LSTM (batch, time, features)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = torch.nn.Linear(6, 8), torch.nn.Linear(10, 3)
        self.rnn = torch.nn.LSTM(8, 10, num_layers=2, batch_first=True)

    def forward(self, x: Any) -> Any:
        y, (hidden, _) = self.rnn(self.stem(x))
        return self.head(y), hidden


class TimeMajor(paddle.nn.Layer):
    """Give it (time, batch, features), and take the outputs back."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.stem, self.head = paddle.nn.Linear(6, 8), paddle.nn.Linear(10, 3)
        self.rnn = paddle.nn.LSTM(8, 10, num_layers=2, time_major=True)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        x = self.stem(x) * (1.01 if self.fault == "before" else 1.0)
        x = x if self.fault == "not given so" else x.transpose([1, 0, 2])
        y, (hidden, _) = self.rnn(x)
        y = y + (0.01 if self.fault == "after" else 0.0)
        return self.head(y if self.fault == "not taken back" else y.transpose([1, 0, 2])), hidden


@sizes
def test_a_recurrent_layer_may_take_the_time_first(size: tuple[int, int]) -> None:
    report = padiff.diff(BatchFirst(), TimeMajor(), (sequences(size),))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied
    assert any("[j, i, k] for [i, j, k] at 'rnn'" in note.text for note in report.notes), str(report)
    assert not any("batch_first" in note.text for note in report.notes), str(report)


@sizes
@pytest.mark.parametrize(("fault", "between"), [("before", ("stem", "rnn")), ("after", ("rnn", "head"))])
def test_a_fault_around_it_is_named(size: tuple[int, int], fault: str, between: tuple[str, str]) -> None:
    report = padiff.diff(BatchFirst(), TimeMajor(fault), (sequences(size),))
    assert [(source.candidate.path, source.between) for source in report.sources] == [("", between)], str(report)


def test_a_transposition_that_is_missing_at_the_end_is_named() -> None:
    """A model that takes its inputs in the reference's order owes its outputs in that order."""
    report = padiff.diff(BatchFirst(), TimeMajor("not taken back"), (sequences((4, 4)),))
    assert [(source.candidate.path, source.between) for source in report.sources] == [("", ("head", "end"))], str(
        report
    )


@sizes
def test_inputs_that_differ_as_the_settings_do_are_the_same(size: tuple[int, int]) -> None:
    x = sequences(size, 8)
    ours, theirs = torch.nn.LSTM(8, 10, batch_first=True), paddle.nn.LSTM(8, 10, time_major=True)
    report = padiff.diff(ours, theirs, (x,), candidate_inputs=(x.transpose(1, 0, 2).copy(),))
    assert report.aligned, str(report)


def test_settings_that_differ_where_inputs_do_not_are_the_cause() -> None:
    ours, theirs = torch.nn.LSTM(8, 10, batch_first=True), paddle.nn.LSTM(8, 10, time_major=True)
    report = padiff.diff(ours, theirs, (sequences((4, 4), 8),))
    assert [source.cause and source.cause.name for source in report.sources] == ["settings"], str(report)
    assert "batch_first" in str(report.sources[0].cause)


class Begun(torch.nn.Module):
    """A recurrent layer that goes on from another's state, the time first; as many steps as sequences and features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = torch.nn.GRU(8, 8), torch.nn.GRU(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any, y: Any) -> Any:
        _, state = self.first(x.transpose(0, 1))
        return self.out(self.second(y.transpose(0, 1), state)[0]).transpose(0, 1)


class Continued(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after, self.out = paddle.nn.GRU(8, 8), paddle.nn.GRU(8, 8), paddle.nn.Linear(8, 8)

    def forward(self, x: Any, y: Any) -> Any:
        _, state = self.before(x)
        return self.out(self.after(y, state.flip(1))[0])


def test_a_fault_in_a_state_leaves_the_order_of_the_values_beside_it() -> None:
    """The state's axes, of which one has the extent 1, told as much of the values' order as what was taken."""
    x, y = np.random.default_rng(0).standard_normal((2, 8, 8, 8), dtype=np.float32)
    (source,) = padiff.diff(Begun(), Continued(), (x, y)).sources
    assert source.what.name == "initial_states", str(source)
