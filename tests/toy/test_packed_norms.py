"""One convolution may pack several with the norms behind them: each channel is a map, and a norm, by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

IMAGES = np.random.default_rng(0).standard_normal((3, 4, 5, 5)).astype(np.float32)


class Unit(rows.Module):
    def __init__(self, n_in: int, n_out: int, size: int = 1) -> None:
        self.conv, self.bn = rows.Conv2d(n_in, n_out, size, padding=size // 2), rows.BatchNorm(n_out)

    def forward(self, x: Any) -> Any:
        return F.silu(self.bn(self.conv(x)))


class Branches(rows.Module):
    """Two branches of a norm each, one of which goes on."""

    def __init__(self) -> None:
        self.left, self.right, self.inner, self.last = Unit(4, 4), Unit(4, 4), Unit(4, 4, 3), Unit(8, 4)

    def forward(self, x: Any) -> Any:
        left, right = self.left(x), self.right(x)
        return self.last(F.concat([left + self.inner(left), right], 1))


class Whole(columns.Layer):
    def __init__(self, n_in: int, n_out: int, size: int = 1, eps: float = 1e-5) -> None:
        self.norm, self.kernel = (
            columns.BatchNormalization(n_out, eps),
            columns.Conv(n_in, n_out, size, padding=size // 2),
        )

    def forward(self, x: Any) -> Any:
        return F.silu(self.norm(self.kernel(x)))


class Joined(columns.Layer):
    """The same with both branches in one convolution and one norm."""

    def __init__(self, fault: str) -> None:
        self.end, self.block = Whole(8, 4), Whole(4, 4, 3)
        self.stem, self.fault = Whole(4, 8, eps=1e-2 if fault == "eps" else 1e-5), fault

    def forward(self, x: Any) -> Any:
        y = self.stem(x)
        left, right = y[..., :4], y[..., 4:]
        inner = self.block(right if self.fault == "branch" else left)
        return self.end(F.concat([left + inner, right]))


def reference() -> Any:
    return rows.Sequential(Branches(), Branches())


def port(fault: str) -> Any:
    blocks = columns.Stack(Joined(""), Joined(fault))

    class Port(columns.Layer):
        def __init__(self) -> None:
            self.blocks = blocks

        def forward(self, x: Any) -> Any:
            return self.blocks(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    return Port()


@pytest.mark.parametrize("training", [True, False])
def test_norms_are_packed_with_the_convolutions_before_them(training: bool) -> None:
    """YOLO's CSP block has one convolution and one norm for both halves: some norms had no counterpart."""
    report = padiff.diff(reference().train(training), port("").train(training), IMAGES)
    assert report.aligned, str(report)
    report = padiff.diff(port("").train(training), reference().train(training), IMAGES)
    assert report.aligned, str(report)


@pytest.mark.parametrize("fault", ["eps", "branch"])
def test_a_fault_there_is_named(fault: str) -> None:
    report = padiff.diff(reference(), port(fault), IMAGES)
    (place,) = {source.candidate.path for source in report.sources}
    assert place == "blocks.1", str(report)
