"""Diff a convolution of frames, whose kernel sees one at a time, with one of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff


class Video(torch.nn.Module):
    """A 3-D convolution of each frame."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv3d(3, 6, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        self.norm, self.head = torch.nn.BatchNorm3d(6), torch.nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3, 4)))


class Images(paddle.nn.Layer):
    """The same with the frames in the batch."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.conv, self.norm = paddle.nn.Conv2D(3, 6, 3, stride=2, padding=1), paddle.nn.BatchNorm2D(6)
        self.head, self.slope = paddle.nn.Linear(6, 4), slope

    def forward(self, x: Any) -> Any:
        batch, channels, frames, *size = x.shape
        x = self.norm(self.conv(x.transpose([0, 2, 1, 3, 4]).reshape([batch * frames, channels, *size])))
        x = paddle.nn.functional.leaky_relu(x, self.slope).mean((2, 3))
        return self.head(x.reshape([batch, frames, -1]).mean(1))


@pytest.mark.parametrize("slope", [0.0, 0.01], ids=["right", "wrong"])
def test_a_kernel_of_one_frame_is_one_of_images(slope: float) -> None:
    """Both weights are one but for an axis of one element: 0.4 said that the parameter has another shape."""
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 8, 8), dtype=np.float32)
    report = padiff.diff(Video(), Images(slope), x)
    assert report.aligned is (slope == 0), str(report)
    assert [source.candidate.path for source in report.sources if source.phase == "forward"] == [""] * (slope != 0)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference
