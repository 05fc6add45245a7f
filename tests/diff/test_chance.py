"""Find what is wrong behind an active dropout, whose masks are others in each framework."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import padiff

X = np.random.default_rng(0).standard_normal((5, 3), dtype=np.float32)


class Torch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(self.first(x)))


class Paddle(paddle.nn.Layer):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.first, self.drop, self.last = paddle.nn.Linear(3, 8), paddle.nn.Dropout(0.5), paddle.nn.Linear(8, 2)
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(self.first(x)) * self.factor)


def test_a_factor_behind_a_dropout_is_named_between_it_and_what_follows() -> None:
    assert padiff.diff(Torch(), Paddle(), (X,)).aligned
    report = padiff.diff(Torch(), Paddle(1.01), (X,))
    assert [(found.candidate.path, found.between) for found in report.sources] == [("", ("drop", "last"))], report


class Seldom(torch.nn.Dropout):
    """Zero the whole first sample: what `p` allows, and any two runs of the other side hardly ever do."""

    def forward(self, x: Any) -> Any:
        return x * (torch.arange(len(x)) > 0)[:, None]


def test_what_draws_seldom_is_left_to_chance_too() -> None:
    reference, candidate = Torch(), Torch()
    reference.drop, candidate.drop = torch.nn.Dropout(1e-9), Seldom(1e-9)
    report = padiff.diff(reference, candidate, (X,))
    assert report.aligned, report
    assert report.counts["stochastic"] == 1, report
    reference.eval()
    candidate.eval()
    report = padiff.diff(reference, candidate, (X,))
    assert [found.candidate.path for found in report.sources] == ["drop"], report
