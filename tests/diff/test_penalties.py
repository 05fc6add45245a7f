"""Compare models whose own code asks for gradients: a penalty on them is differentiated once more."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import padiff

X = np.random.default_rng(0).standard_normal((5, 6), dtype=np.float32)


class Critic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, x: Any) -> Any:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.body(x).sum(), x, create_graph=True)
        return self.body(x).mean() + 10 * ((gradient.norm(2, dim=1) - 1) ** 2).mean()


class Turned(paddle.nn.Layer):
    def __init__(self, weight: float = 10.0) -> None:
        super().__init__()
        self.last, self.first, self.weight = paddle.nn.Linear(8, 1), paddle.nn.Linear(6, 8), weight

    def judged(self, x: Any) -> Any:
        return self.last(paddle.tanh(self.first(x)))

    def forward(self, x: Any) -> Any:
        x = x.detach()
        x.stop_gradient = False
        (gradient,) = paddle.grad([self.judged(x).sum()], [x], create_graph=True)
        norm = (gradient**2).sum(1).sqrt()
        return self.judged(x).mean() + self.weight * ((norm - 1) ** 2).mean()


def test_a_gradient_penalty_is_aligned() -> None:
    report = padiff.diff(Critic(), Turned(), (X,))
    assert report.aligned, report
    assert padiff.diff(Critic(), Critic(), (X,)).aligned


def test_another_weight_of_the_penalty_is_the_only_source() -> None:
    report = padiff.diff(Critic(), Turned(1.0), (X,))
    assert [(found.candidate.path, found.what.kind) for found in report.sources] == [("", "output")], report
