"""Diff models in which a kernel has no float64, as MindSpore's convolution on the CPU."""

from __future__ import annotations

import math
from typing import Any

import mindspore
import numpy as np
import pytest
import torch

import padiff

CONV = {"pad_mode": "pad", "padding": 1, "has_bias": True}


class Block(torch.nn.Module):
    """A norm, and a feed-forward with a convolution in it, beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.up = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 8)
        self.conv, self.down = torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Linear(8, 4)
        self.last = torch.nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x = x + self.first(x)
        y = self.conv(self.up(self.norm(x)).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return self.last(x + self.down(y))


class Port(mindspore.nn.Cell):
    def __init__(self, *, normed: bool, scale: float) -> None:
        super().__init__()
        nn = mindspore.nn
        self.one, self.two, self.three = nn.Dense(4, 4), nn.Dense(4, 8), nn.Dense(8, 4)
        self.ln, self.out = nn.LayerNorm((4,), epsilon=1e-5), nn.LayerNorm((4,), epsilon=1e-5)
        self.conv, self.normed, self.scale = nn.Conv2d(8, 8, 3, **CONV), normed, scale

    def construct(self, x: Any) -> Any:
        x = x + self.one(x)
        y = self.conv(self.two(self.ln(x) if self.normed else x).transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
        return self.out(x * self.scale + self.three(y))


@pytest.mark.parametrize("scale", [1.0, 1.1])
@pytest.mark.parametrize("normed", [True, False])
def test_a_norm_that_is_left_out_is_one_source_beside_a_residual(normed: bool, scale: float) -> None:
    """The residual takes what the norm should have been given: it was fed with the norm's, and a second source."""
    x = np.random.default_rng(0).standard_normal((2, 5, 5, 4), dtype=np.float32)
    report = padiff.diff(Block(), Port(normed=normed, scale=scale), (x,), phase="forward")
    places = ["input 'x' of two"] * (not normed) + ["input 'input_x' of out"] * (scale != 1.0)
    assert [str(source.what) for source in report.sources] == places, str(report)


class Timed(torch.nn.Module):
    """An image, and what is made of a time: the embedding of a diffusion model."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.image = torch.nn.Linear(16, 8), torch.nn.Conv2d(3, 8, 3)

    def forward(self, x: Any, t: Any) -> Any:
        angles = t[:, None].float() * torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        return self.image(x) * self.time(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None]


class TimedPort(mindspore.nn.Cell):
    """The same; MindSpore's exponential is off by 20 machine epsilons, and numbers are cast to float32 in code."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.embedded = fault, mindspore.nn.Dense(16, 8)
        self.conv = mindspore.nn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True)

    def construct(self, x: Any, t: Any) -> Any:
        ops, dtype = mindspore.ops, mindspore.float32
        base = 9999.0 if self.fault == "base" else 1e4
        frequencies = ops.exp(-math.log(base) * ops.arange(8).astype(dtype) / 8)
        angles = t.astype(dtype).expand_dims(1) * frequencies
        table = ops.cat([ops.sin(angles), ops.cos(angles)], -1)
        time = self.embedded(table.astype(mindspore.float16).astype(dtype) if self.fault == "cast" else table)
        return self.conv(x) * time.expand_dims(-1).expand_dims(-1)


@pytest.mark.parametrize("fault", ["", "base", "cast"])
def test_what_a_framework_rounds_in_code_beside_a_convolution_is_no_source(fault: str) -> None:
    """Large angles make more of it: right U-Nets were wrong where they embed the time."""
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 6), dtype=np.float32)
    report = padiff.diff(Timed(), TimedPort(fault), (x, np.array([3, 70])))
    assert [str(source.what) for source in report.sources] == ["input 'x' of embedded"] * bool(fault), str(report)
    assert report.aligned is not bool(fault), str(report)
