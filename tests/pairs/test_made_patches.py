"""Diff a linear layer that makes patches, which code puts together, with a transposed convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff


class Tokens(torch.nn.Module):
    """Each token makes a patch; the code puts these side by side, or adds them up where they overlap."""

    def __init__(self, *, overlap: bool) -> None:
        super().__init__()
        self.norm, self.out, self.overlap = torch.nn.LayerNorm(6), torch.nn.Linear(6, 18, bias=False), overlap

    def forward(self, x: Any) -> Any:
        x = self.out(self.norm(x))
        if self.overlap:
            return torch.nn.functional.fold(x.transpose(1, 2), (7, 9), 3, stride=2)
        x = x.reshape(2, 3, 4, 3, 3, 2)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(2, 2, 9, 12)


class Maps(paddle.nn.Layer):
    """The same by a layer."""

    def __init__(self, *, overlap: bool, fault: str) -> None:
        super().__init__()
        stride = 2 if overlap else 3
        self.up = paddle.nn.Conv2DTranspose(6, 2, 3, stride, bias_attr=False)
        self.ln, self.fault = paddle.nn.LayerNorm(6), fault

    def forward(self, x: Any) -> Any:
        x = self.ln(x).transpose([0, 2, 1]).reshape([2, 6, 3, 4])
        return self.up(x) * (1.01 if self.fault == "scale" else 1)


@pytest.mark.parametrize("fault", ["", "scale"])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_transposed_convolution_may_be_a_linear_layer(overlap: bool, turned: bool, fault: str) -> None:
    """Neither had a counterpart."""
    x = np.random.default_rng(0).standard_normal((2, 12, 6), dtype=np.float32)
    sides = Tokens(overlap=overlap), Maps(overlap=overlap, fault=fault)
    report = padiff.diff(*(sides[::-1] if turned else sides), (x,))
    assert report.aligned is not bool(fault), str(report)
    assert len(report.sources) == bool(fault), str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_reference, str(report)
