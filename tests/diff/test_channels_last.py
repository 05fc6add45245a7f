"""Compare a model that has its channels last with one that has them first."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

WIDTHS = {"unlike": (3, 8, 12), "all alike": (8, 8, 8)}
"""Channels in, channels inside, height and width: shapes may tell where the channels are, or not."""


class First(torch.nn.Module):
    """Take (batch, channels, height, width)."""

    def __init__(self, channels: int, width: int, factor: float = 1.0) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(channels, width, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(width)
        self.act = torch.nn.ReLU()
        self.inner = torch.nn.Conv2d(width, width, 3, padding=1)
        self.pool = torch.nn.MaxPool2d(2)
        self.factor = factor

    def forward(self, x: Any) -> Any:
        x = self.act(self.norm(self.stem(x)))
        return self.pool(x + self.inner(x) * self.factor)


class Last(paddle.nn.Layer):
    """Take (batch, height, width, channels)."""

    def __init__(self, channels: int, width: int, factor: float = 1.0, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.stem = paddle.nn.Conv2D(channels, width, 3, padding=1, data_format="NHWC")
        self.norm = paddle.nn.BatchNorm2D(width, epsilon=epsilon, data_format="NHWC")
        self.act = paddle.nn.ReLU()
        self.inner = paddle.nn.Conv2D(width, width, 3, padding=1, data_format="NHWC")
        self.pool = paddle.nn.MaxPool2D(2, data_format="NHWC")
        self.factor = factor

    def forward(self, x: Any) -> Any:
        x = self.act(self.norm(self.stem(x)))
        return self.pool(x + self.inner(x) * self.factor)


def images(channels: int, size: int) -> tuple[Any, Any]:
    """Return a batch with its channels first, and the same with its channels last."""
    array = np.random.default_rng(0).standard_normal((2, channels, size, size), dtype=np.float32)
    return array, np.ascontiguousarray(array.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("reference", ["first", "last"])
def test_models_that_differ_in_nothing_else_are_aligned(widths: tuple[int, int, int], reference: str) -> None:
    channels, width, size = widths
    first, last = images(channels, size)
    sides = [(First(channels, width), first), (Last(channels, width), last)]
    (ours, mine), (theirs, yours) = sides if reference == "first" else sides[::-1]
    report = padiff.diff(ours, theirs, {"x": mine}, candidate_inputs={"x": yours})
    assert report.aligned, report
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied
    assert any("channels last" in note.text for note in report.notes)
    assert "unmatched" not in report.counts, report


@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize(
    ("fault", "path", "between"),
    [({"factor": 1.01}, "", ("inner", "pool")), ({"epsilon": 1e-3}, "norm", None)],
    ids=["factor", "epsilon"],
)
def test_a_fault_is_named_at_its_place(
    widths: tuple[int, int, int], fault: dict[str, float], path: str, between: tuple[str, str] | None
) -> None:
    channels, width, size = widths
    first, last = images(channels, size)
    report = padiff.diff(First(channels, width), Last(channels, width, **fault), (first,), candidate_inputs=(last,))
    assert [source.candidate.path for source in report.sources] == [path], report
    assert report.sources[0].between == between or between is None


def test_the_other_way_round_a_fault_is_named_too() -> None:
    first, last = images(3, 12)
    report = padiff.diff(Last(3, 8), First(3, 8, factor=1.01), (last,), candidate_inputs=(first,))
    assert [(source.candidate.path, source.between) for source in report.sources] == [("", ("inner", "pool"))], report


def test_gradients_of_the_inputs_are_compared() -> None:
    class Hooked(First):
        def forward(self, x: Any) -> Any:
            if x.requires_grad:
                x = x.clone()
                x.register_hook(lambda gradient: gradient * 1.5)
            return super().forward(x)

    first, last = images(3, 12)
    report = padiff.diff(Last(3, 8), Hooked(3, 8), (last,), candidate_inputs=(first,))
    assert [source.phase for source in report.sources] == [padiff.Phase.BACKWARD], report
