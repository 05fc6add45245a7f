"""Settle what one framework has no float64 kernel for: MindSpore's convolutions, on the CPU."""

from __future__ import annotations

from typing import Any

import mindspore  # before Paddle, which another test may bring
import numpy as np
import pytest
import torch
from mindspore import nn as mnn
from torch import nn

import padiff
from padiff.report import Phase, Report, Verdict


class OursConv(nn.Conv2d):
    """Scale what a convolution gives by ``off``."""

    off = 1.0

    def forward(self, input: Any) -> Any:
        return super().forward(input) * self.off


class TheirsConv(mnn.Conv2d):
    """Do the same in MindSpore."""

    off = 1.0

    def construct(self, x: Any) -> Any:
        return super().construct(x) * self.off


class Ours(nn.Module):
    """A convolution, code of the module's own, another convolution; ``cut`` holds back a part of the gradient."""

    gain = 1.0

    def __init__(self, cut: float = 0.0) -> None:
        super().__init__()
        self.first = OursConv(3, 8, 3, padding=1)
        self.second = OursConv(8, 8, 3, padding=1)
        self.cut = cut

    def forward(self, x: Any) -> Any:
        hidden = torch.tanh(self.gain * self.first(x))
        hidden = hidden * (1 - self.cut) + hidden.detach() * self.cut
        return self.second(hidden)


class Theirs(mnn.Cell):
    """Do the same in MindSpore."""

    gain = 1.0

    def __init__(self, cut: float = 0.0) -> None:
        super().__init__()
        self.first = TheirsConv(3, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.second = TheirsConv(8, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.cut = cut

    def construct(self, x: Any) -> Any:
        hidden = mindspore.ops.tanh(self.gain * self.first(x))
        hidden = hidden * (1 - self.cut) + mindspore.ops.stop_gradient(hidden) * self.cut
        return self.second(hidden)


def compared(ours: Any, theirs: Any, *, reverse: bool, seed: int = 0) -> Report:
    x = np.random.default_rng(seed).standard_normal((2, 3, 9, 9), dtype=np.float32)
    return padiff.diff(*((theirs, ours) if reverse else (ours, theirs)), (x,))


BOTH = pytest.mark.parametrize("reverse", [False, True], ids=["torch as reference", "mindspore as reference"])


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_equal_models_are_aligned(reverse: bool, seed: int) -> None:
    torch.manual_seed(seed)
    report = compared(Ours(), Theirs(), reverse=reverse, seed=seed)
    assert report.aligned, report


@BOTH
def test_an_error_of_a_few_machine_epsilons_is_told_from_rounding(reverse: bool) -> None:
    """Off by 33 machine epsilons: the side that runs in float64 tells how much of that is rounding."""
    theirs = Theirs()
    theirs.second.off = 1 + 4e-6
    report = compared(Ours(), theirs, reverse=reverse)
    (found,) = report.sources
    assert (found.candidate.path, found.phase, found.verdict) == ("second", Phase.FORWARD, Verdict.DIFFERS)
    side = "candidate" if reverse else "reference"
    assert any(f"against the {side} alone in float64" in text for text in found.evidence)
    assert found.figures is not None
    assert found.figures.floor is not None
    assert found.figures.floor < 1e-6 < found.figures.rel_l2


@BOTH
def test_a_small_fault_of_the_backward_pass_is_named_in_code_around_convolutions(reverse: bool) -> None:
    report = compared(Ours(), Theirs(cut=0.05), reverse=reverse)
    (found,) = report.sources
    assert (found.candidate.path, found.phase) == ("", Phase.BACKWARD)


@BOTH
@pytest.mark.parametrize("off", [0.0, 3e-3])
def test_a_kernel_that_is_off_itself_is_no_fault_beside_convolutions(off: float, reverse: bool) -> None:
    """MindSpore's float32 tanh is off by up to 1e-4 for inputs of 4 to 6, and right in float64."""
    ours, theirs = Ours(), Theirs()
    ours.gain, theirs.gain = 8.0, 8.0 + off
    report = compared(ours, theirs, reverse=reverse)
    assert {(one.candidate.path, one.phase) for one in report.sources} == ({("", Phase.FORWARD)} if off else set())
    assert any(one.verdict is Verdict.PRECISION for one in report.findings) is not bool(off)
    assert report.output is not None
    assert report.output.rel_l2 > 3e-6
