"""A recurrent module of two layers against two modules of one layer each, in a block that is wrong beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

X = np.random.default_rng(0).standard_normal((2, 5, 8), dtype=np.float32)


class Stacked(torch.nn.Module):
    """Two layers in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0] + x


class Split(paddle.nn.Layer):
    """The same in two, with a residual connection of some weight."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.l0, self.l1, self.weight = paddle.nn.LSTM(8, 8), paddle.nn.LSTM(8, 8), weight

    def forward(self, x: Any) -> Any:
        return self.l1(self.l0(x)[0])[0] + self.weight * x


@pytest.mark.parametrize("weight", [1.0, 1.1])
def test_how_many_layers_is_not_set_on_a_live_module(weight: float) -> None:
    """The cause was sought by setting `num_layers` to 2, and Paddle read weights that are not there: it died."""
    reference = torch.nn.Sequential(Stacked(), torch.nn.Linear(8, 4))
    report = padiff.diff(reference, paddle.nn.Sequential(Split(weight), paddle.nn.Linear(8, 4)), X)
    assert [(one.candidate.path, str(one.what)) for one in report.sources] == [("0", "output")] * (weight != 1), str(
        report
    )


def coder() -> torch.nn.Module:
    """Return an encoder and a decoder around a bottleneck."""
    nn = torch.nn
    around = nn.Linear(8, 4), nn.Linear(4, 8)
    return nn.Sequential(nn.Linear(3, 8), Stacked(), nn.Tanh(), *around, Stacked(), nn.Tanh(), nn.Linear(8, 3))


class Coder(paddle.nn.Layer):
    """The same, defined in another order."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.encoder, self.decoder = Split(1.0), Split(weight)
        self.into, self.code, self.back, self.out = (paddle.nn.Linear(*one) for one in ((3, 8), (8, 4), (4, 8), (8, 3)))

    def forward(self, x: Any) -> Any:
        x = self.back(self.code(paddle.tanh(self.encoder(self.into(x)))))
        return self.out(paddle.tanh(self.decoder(x)))


def test_a_layer_takes_what_the_one_before_gives() -> None:
    """EnCodec's: both layers of a module stood side by side, and the decoder's two were taken for each other."""
    reference, x = coder(), X[..., :3]
    report = padiff.diff(reference, Coder(1.0), x)
    assert report.aligned, str(report)
    report = padiff.diff(reference, Coder(1.1), x)
    assert [(one.candidate.path, str(one.what)) for one in report.sources] == [("decoder", "output")], str(report)


class Read(torch.nn.Module):
    """Some layers, and what reads them."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.lstm, self.out = torch.nn.LSTM(8, 8, layers, batch_first=True), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0])


class ReadPort(paddle.nn.Layer):
    """The same."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.lstm, self.out = paddle.nn.LSTM(8, 8, layers), paddle.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0])


@pytest.mark.parametrize(("ours", "theirs"), [(1, 2), (2, 1), (3, 2)])
def test_of_more_layers_the_last_is_left_over(ours: int, theirs: int) -> None:
    """The layer before the output looks like the last one: the first was said to be left over."""
    transfer = padiff.diff(Read(ours), ReadPort(theirs), X).transfer
    assert transfer is not None
    left = transfer.unmatched_reference + transfer.unmatched_candidate
    roles = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    assert sorted(left) == sorted(f"lstm.{role}_l{min(ours, theirs)}" for role in roles)


class Step(paddle.nn.Layer):
    """A step of an LSTM by hand, with one bias for each gate: of one matrix for input and state, or of two."""

    def __init__(self, *, joined: bool, fault: str) -> None:
        super().__init__()
        self.given, self.fault = paddle.nn.Linear(8 + 4 * joined, 16), fault
        self.kept = None if joined else paddle.nn.Linear(4, 16, bias_attr=False)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        gates = self.given(paddle.concat([x, h], -1)) if self.kept is None else self.given(x) + self.kept(h)
        i, f, g, o = paddle.split(gates, 4, -1)
        act = paddle.nn.functional.sigmoid
        c = act(f + 1.0 if self.fault == "forget" else f) * c + act(i) * paddle.tanh(g)
        return act(o) * paddle.tanh(c), c


class BothWays(paddle.nn.Layer):
    """A bidirectional layer by hand."""

    def __init__(self, *, joined: bool, fault: str) -> None:
        super().__init__()
        self.there, self.back = (Step(joined=joined, fault=one) for one in ("", fault))
        self.out = paddle.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        ways = []
        for step, times in ((self.there, range(5)), (self.back, range(4, -1, -1))):
            h, c, states = paddle.zeros([2, 4]), paddle.zeros([2, 4]), {}
            for time in times:
                h, c = step(x[:, time], h, c)
                states[time] = h
            ways.append(paddle.stack([states[time] for time in range(5)], 1))
        return self.out(paddle.concat(ways, -1))


@pytest.mark.parametrize("joined", [False, True], ids=["two matrices", "one matrix"])
@pytest.mark.parametrize("fault", ["", "forget"])
def test_each_direction_has_two_biases_for_one(fault: str, joined: bool) -> None:
    """Biases were added to those of another direction, and the two directions were taken for each other."""

    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.out = torch.nn.LSTM(8, 4, bidirectional=True, batch_first=True), torch.nn.Linear(8, 2)

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(x)[0])

    report = padiff.diff(Tagger(), BothWays(joined=joined, fault=fault), X)
    assert [(one.candidate.path, one.what.kind) for one in report.sources] == [("", "input")] * bool(fault), str(report)
