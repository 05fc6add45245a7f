"""Diff models that are given the targets of a loss: torch sends them a gradient, Paddle's losses send none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle.nn import functional as paddle_functional
from torch.nn import functional

import padiff

R = np.random.default_rng(0)
X, Y = R.standard_normal((4, 6), dtype=np.float32), R.random((4, 5), dtype=np.float32)


class Ours(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 5)

    def forward(self, x: Any, y: Any) -> Any:
        return functional.binary_cross_entropy_with_logits(self.layer(x), y * 0.9 + 0.05)


def stopped(y: Any) -> Any:
    smooth = y * 0.9 + 0.05
    smooth.stop_gradient = True
    return smooth


@paddle.no_grad()
def without(y: Any) -> Any:
    return y * 0.9 + 0.05


class Theirs(paddle.nn.Layer):
    """``smooth`` makes the targets, ``inside`` a module computes the loss."""

    def __init__(self, smooth: Callable[[Any], Any], inside: bool, factor: float) -> None:
        super().__init__()
        self.layer, self.smooth, self.factor = paddle.nn.Linear(6, 5), smooth, factor
        self.loss = paddle.nn.BCEWithLogitsLoss() if inside else paddle_functional.binary_cross_entropy_with_logits

    def forward(self, x: Any, y: Any) -> Any:
        return self.loss(self.layer(x) * self.factor, self.smooth(y))


def smoothed(y: Any) -> Any:
    return y * 0.9 + 0.05


@pytest.mark.parametrize("reverse", [False, True], ids=["torch as reference", "paddle as reference"])
@pytest.mark.parametrize("inside", [False, True], ids=["function", "layer"])
@pytest.mark.parametrize("factor", [1.0, 1.01], ids=["right", "wrong"])
def test_targets_that_a_loss_sends_no_gradient_are_no_fault(factor: float, inside: bool, reverse: bool) -> None:
    """They were: the evidence said that the other model's code detaches them."""
    models = Ours(), Theirs(smoothed, inside, factor)
    report = padiff.diff(*(models[::-1] if reverse else models), (X, Y))
    assert report.aligned is (factor == 1), str(report)
    assert {str(source.phase) for source in report.sources} == (set() if factor == 1 else {"forward"})
    noted = [note.text for note in report.notes if note.kind == "inert_inputs"]
    assert len(noted) == (factor == 1)  # beside a fault nothing more is told of gradients behind it


@pytest.mark.parametrize("smooth", [lambda y: smoothed(y.detach()), stopped, without, lambda y: smoothed(y).detach()])
def test_targets_that_code_detaches_are(smooth: Callable[[Any], Any]) -> None:
    report = padiff.diff(Ours(), Theirs(smooth, False, 1.0), (X, Y))
    assert [(source.what.kind, source.what.name) for source in report.sources] == [("input_gradient", "y")], str(report)


class Gated(torch.nn.Module):
    """Two inputs meet each other before they meet a parameter; a port may detach what they make."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6))

    def forward(self, x: Any, gate: Any) -> Any:
        return x * gate * self.weight


class GatedPort(paddle.nn.Layer):
    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.weight, self.detached = self.create_parameter([6]), detached

    def forward(self, x: Any, gate: Any) -> Any:
        joined = x * gate
        return (joined.detach() if self.detached else joined) * self.weight


@pytest.mark.parametrize("detached", [False, True])
def test_what_several_inputs_make_together_is_not_excused_where_it_is_detached(detached: bool) -> None:
    report = padiff.diff(Gated(), GatedPort(detached), (X, R.random((4, 6), dtype=np.float32)))
    assert report.aligned is not detached, str(report)
    assert {source.what.name for source in report.sources} == ({"x", "gate"} if detached else set())
