"""What `aligned` rests on: the free runs, their distribution where they are random, and that there is something."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

X = np.random.default_rng(0).standard_normal((4, 16), dtype=np.float32)


class Noisy(torch.nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.layer, self.scale = torch.nn.Linear(16, 8), scale

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        return y + self.scale * torch.randn_like(y)


class PaddleNoisy(paddle.nn.Layer):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.layer, self.scale = paddle.nn.Linear(16, 8), scale

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        return y + self.scale * paddle.randn(y.shape)


def test_noise_of_the_same_scale_is_aligned() -> None:
    report = padiff.diff(Noisy(), PaddleNoisy(), (X,))
    assert report.aligned, report
    assert report.free_runs.by == "random"


@pytest.mark.parametrize("scale", [2.0, 0.5])
def test_noise_of_another_scale_is_no_pass(scale: float) -> None:
    """No single pair of runs tells; 0.4 called it aligned, with outputs 96 % apart."""
    report = padiff.diff(Noisy(), PaddleNoisy(scale), (X,))
    assert not report.aligned
    (source,) = report.sources
    assert [one.kind for one in source.evidence] == ["distribution"]
    assert source.between == ("layer", "end")
    assert "of other distributions" in str(report)


class TimeFirst(torch.nn.Module):
    """Layers that compute in (time, batch, features), where the reference's take the batch first."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.first, self.last, self.factor = torch.nn.Linear(16, 16), torch.nn.Linear(16, 8), factor

    def forward(self, x: Any) -> Any:
        hidden = torch.tanh(self.first(x.transpose(0, 1))) * self.factor
        return self.last(hidden).transpose(0, 1)


class BatchFirst(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = paddle.nn.Linear(16, 16), paddle.nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return self.last(paddle.tanh(self.first(x)))


def test_what_is_in_another_axis_order_is_compared_too() -> None:
    """Version 0.4 compared none of it, and called a scale that is off by 5 % aligned."""
    x = np.random.default_rng(1).standard_normal((3, 5, 16), dtype=np.float32)
    report = padiff.diff(BatchFirst(), TimeFirst(), (x,))
    assert report.aligned, report
    assert report.coverage.share == 1
    (source,) = padiff.diff(BatchFirst(), TimeFirst(1.05), (x,)).sources
    assert source.between == ("first", "last")


def test_a_batch_of_nothing_is_trouble() -> None:
    with pytest.raises(padiff.UnusableReference, match="hold no element") as caught:
        padiff.diff(Noisy(), PaddleNoisy(), (X[:0],))
    assert "at least one sample" in str(caught.value)


def test_all_of_a_right_port_is_compared() -> None:
    report = padiff.diff(torch.nn.Linear(16, 8), paddle.nn.Linear(16, 8), (X,))
    assert report.aligned
    assert report.coverage.share == 1
    assert report.free_runs.explained
