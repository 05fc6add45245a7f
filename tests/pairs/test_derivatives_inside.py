"""Diff models whose forward takes the derivative of what a network inside of them makes, as physics losses do."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

POINTS = np.random.default_rng(0).standard_normal((7, 2), dtype=np.float32)


class Slope(torch.nn.Module):
    """A network, and its slope at each point."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def forward(self, points: Any) -> Any:
        points = points.detach().requires_grad_()
        height = self.net(points)
        return height, torch.autograd.grad(height.sum(), points, create_graph=True)[0]


class Ported(paddle.nn.Layer):
    def __init__(self, factor: float = 1.0, *, graph: bool = True) -> None:
        super().__init__()
        self.layers = paddle.nn.Sequential(paddle.nn.Linear(2, 16), paddle.nn.Tanh(), paddle.nn.Linear(16, 1))
        self.factor, self.graph = factor, graph

    def forward(self, points: Any) -> Any:
        points = points.detach()
        points.stop_gradient = False
        height = self.layers(points)
        slope = paddle.grad(height, points, create_graph=self.graph)[0]
        return height, slope if self.factor == 1 else slope * self.factor


@pytest.mark.parametrize("operations", [False, True])
def test_a_derivative_taken_inside_is_right(operations: bool) -> None:
    report = padiff.diff(Slope(), Ported(), (POINTS,), operations=operations)
    assert report.aligned, str(report)


@pytest.mark.parametrize("operations", [False, True])
def test_a_derivative_that_is_scaled_is_one_source(operations: bool) -> None:
    """It comes to the weights by no tensor that a layer takes or gives: their gradients were another source."""
    report = padiff.diff(Slope(), Ported(2.0), (POINTS,), operations=operations)
    found = [(source.phase, source.reference.path, source.cause is None) for source in report.sources]
    assert found == [("forward", "", operations)], str(report)


def test_a_derivative_without_a_graph_is_still_told() -> None:
    """Nothing forward differs, so that nothing else explains the gradients of the weights."""
    report = padiff.diff(Slope(), Ported(graph=False), (POINTS,))
    assert not report.aligned
    assert {source.phase for source in report.sources} == {"backward"}, str(report)
