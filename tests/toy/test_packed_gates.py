"""Pack the gates of recurrent convolutions that run again and again: all of them meet the same values in the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype(np.float32)


class Gated(rows.Module):
    """A step of two stages, with kernels of three elements and of one, and each gate by itself."""

    def __init__(self) -> None:
        self.z1, self.r1, self.q1 = (rows.Conv2d(6, 3, 3, padding=1) for _ in range(3))
        self.z2, self.r2, self.q2 = (rows.Conv2d(6, 3, 1) for _ in range(3))

    def forward(self, h: Any, x: Any) -> Any:
        for update, reset, fresh in ((self.z1, self.r1, self.q1), (self.z2, self.r2, self.q2)):
            both = F.concat([h, x], 1)
            z, r = F.sigmoid(update(both)), F.sigmoid(reset(both))
            h = h - z * h + z * F.tanh(fresh(F.concat([r * h, x], 1)))
        return h


class Refined(rows.Module):
    def __init__(self) -> None:
        self.given, self.step, self.out = rows.Conv2d(3, 3, 1), Gated(), rows.Conv2d(3, 2, 1)

    def forward(self, x: Any) -> Any:
        h = F.tanh(self.given(x))
        for _ in range(3):
            h = self.step(h, x)
        return self.out(h)


class Stage(columns.Layer):
    """One stage with both gates in one convolution."""

    def __init__(self, size: int, fault: str) -> None:
        self.zr = columns.Conv(6, 6, size, padding=size // 2)
        self.q, self.fault = columns.Conv(6, 3, size, padding=size // 2), fault

    def forward(self, h: Any, x: Any) -> Any:
        gates = F.sigmoid(self.zr(F.concat([h, x])))
        z, r = gates[..., :3], gates[..., 3:]
        new = F.tanh(self.q(F.concat([h if self.fault == "reset" else r * h, x])))
        return h + z * (new - h)


class RefinedByStages(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.first, self.last = columns.Conv(3, 3, 1), columns.Conv(3, 2, 1)
        self.stages = columns.Layers(Stage(3, ""), Stage(1, fault))

    def forward(self, x: Any) -> Any:
        x = x.transpose(0, 2, 3, 1)  # channels last, as its convolutions are
        h = F.tanh(self.first(x))
        for _ in range(3):
            for stage in self.stages:
                h = stage(h, x)
        return self.last(h).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("turned", [False, True], ids=["apart", "packed"])
def test_gates_of_other_kernels_are_packed_apart(turned: bool) -> None:
    """Where all gates take the same, those of two kernels were one group, and none was found packed."""
    sides = Refined(), RefinedByStages()
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert report.aligned, str(report)


def test_a_fault_among_packed_gates_stands_at_its_place() -> None:
    report = padiff.diff(Refined(), RefinedByStages("reset"), (X,))
    assert {one.between[-1] for one in report.sources} == {"stages.1.q"}, str(report)
