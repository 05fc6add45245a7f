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
        self.first, self.second, self.weight = paddle.nn.LSTM(8, 8), paddle.nn.LSTM(8, 8), weight

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x)[0])[0] + self.weight * x


@pytest.mark.parametrize("weight", [1.0, 1.1])
def test_how_many_layers_is_not_set_on_a_live_module(weight: float) -> None:
    """The cause was sought by setting `num_layers` to 2, and Paddle read weights that are not there: it died."""
    reference = torch.nn.Sequential(Stacked(), torch.nn.Linear(8, 4))
    report = padiff.diff(reference, paddle.nn.Sequential(Split(weight), paddle.nn.Linear(8, 4)), X)
    assert [(one.candidate.path, str(one.what)) for one in report.sources] == [("0", "output")] * (weight != 1), str(
        report
    )
