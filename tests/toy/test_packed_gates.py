"""Pack the gates of recurrent convolutions that run again and again: all of them meet the same values in the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

MANY = 4
"""Layers in a list."""
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


class Cell(rows.Module):
    """A recurrent convolution: one convolution for all gates, of input and state side by side."""

    def __init__(self) -> None:
        self.gates, self.out = rows.Conv2d(5, 8, 3, padding=1), rows.Conv2d(2, 2, 1)

    def forward(self, x: Any) -> Any:
        h = c = x[:, :2] * 0.0
        for _ in range(3):
            both = self.gates(F.concat([x, h], 1))
            i, f, o, g = (both[:, 2 * k : 2 * k + 2] for k in range(4))
            c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
            h = F.sigmoid(o) * F.tanh(c)
        return self.out(h)


class CellByGates(columns.Layer):
    """The same with a convolution for each gate of the input, and of the state; the state's come first."""

    def __init__(self, fault: str = "") -> None:
        self.h = columns.Layers(*(columns.Conv(2, 2, 3, padding=1) for _ in range(4)))
        self.x = columns.Layers(*(columns.Conv(3, 2, 3, padding=1) for _ in range(4)))
        self.last, self.fault = columns.Conv(2, 2, 1), fault

    def forward(self, x: Any) -> Any:
        x = x.transpose(0, 2, 3, 1)
        h = c = x[..., :2] * (1.0 if self.fault == "start" else 0.0)
        for _ in range(3):
            g, o, f, i = (of_x(x) + of_h(h) for of_x, of_h in zip(self.x, self.h, strict=True))
            c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
            h = F.sigmoid(o) * (c if self.fault == "tanh" else F.tanh(c))
        return self.last(h).transpose(0, 3, 1, 2)


@pytest.mark.parametrize(("turned", "fault"), [(False, ""), (True, ""), (False, "start"), (False, "tanh")])
def test_gates_of_input_and_state_are_packed_by_rows_and_columns(turned: bool, fault: str) -> None:
    """A layer was packed by rows or by columns: eight layers were in the candidate only."""
    sides = Cell(), CellByGates(fault)
    report = padiff.diff(*(sides[::-1] if turned else sides), (X,))
    assert {(one.candidate.path, str(one.what)) for one in report.sources} == (
        {("", "input 'x' of last")} if fault else set()
    ), str(report)
    assert report.aligned == (not fault)


class Reset(rows.Module):
    """A cell of which one layer on input and state gives two gates, and another one what is new."""

    def __init__(self) -> None:
        self.gates, self.fresh, self.out = rows.Linear(8, 10), rows.Linear(8, 5), rows.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        h = F.concat([x[:, 0], x[:, 0, :2]]) * 0.0
        for step in range(x.shape[1]):
            gates = F.sigmoid(self.gates(F.concat([x[:, step], h])))
            r, z = gates[:, :5], gates[:, 5:]
            new = F.tanh(self.fresh(F.concat([x[:, step], r * h])))
            h = new + z * (h - new)
        return self.out(h)


class ResetByInputs(columns.Layer):
    """The same with a layer for all of the input, and two for the state: what is new comes first."""

    def __init__(self, fault: str) -> None:
        self.given, self.last, self.fault = columns.Dense(3, 15), columns.Dense(5, 2), fault
        self.kept, self.scaled = columns.Dense(5, 10, bias=False), columns.Dense(5, 5, bias=False)

    def forward(self, x: Any) -> Any:
        h = F.concat([x[:, 0], x[:, 0, :2]]) * 0.0
        given = self.given(x)
        for step in range(x.shape[1]):
            gates = F.sigmoid(given[:, step, 5:] + self.kept(h))
            r, z = gates[:, :5], gates[:, 5:]
            kept = r * self.scaled(h) if self.fault == "late" else self.scaled(r * h)
            new = F.tanh(given[:, step, :5] + (-1.0 if self.fault == "sign" else 1.0) * kept)
            h = new + z * (h - new)
        return self.last(h)


@pytest.mark.parametrize("fault", ["", "late", "sign"])
@pytest.mark.parametrize("turned", [False, True], ids=["gates", "inputs"])
def test_neither_side_may_pack_the_other(turned: bool, fault: str) -> None:
    """Each layer of one side holds a part of several of the other's: all of them were told as missing."""
    sides = Reset(), ResetByInputs(fault)
    report = padiff.diff(*(sides[::-1] if turned else sides), (X[:, 0].transpose(0, 2, 1)[..., [0, 1, 2]],))
    assert report.aligned is not bool(fault), str(report)
    assert len(report.sources) == bool(fault), str(report)


class Skips(rows.Module):
    """Gated layers in four lists, of which each gives an output; all outputs are added up."""

    def __init__(self) -> None:
        self.filters, self.gates = (rows.ModuleList(*(rows.Linear(4, 3) for _ in range(MANY))) for _ in range(2))
        self.rest, self.skips = (rows.ModuleList(*(rows.Linear(3, size) for _ in range(MANY))) for size in (4, 5))
        self.out = rows.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        total = 0.0
        for a, b, rest, skip in zip(self.filters, self.gates, self.rest, self.skips, strict=True):
            y = F.tanh(a(x)) * F.sigmoid(b(x))
            total, x = skip(y) + total, x + rest(y)
        return self.out(F.gelu(total))


class Both(columns.Layer):
    """One of these layers, packed: what it gives on comes before its output."""

    def __init__(self, fault: str) -> None:
        self.within, self.out, self.fault = columns.Dense(4, 6), columns.Dense(3, 9), fault

    def forward(self, x: Any) -> Any:
        y = self.within(x)
        y = self.out(F.tanh(y[..., :3]) * F.sigmoid(y[..., 3:]))
        return y[..., :4] if self.fault else x + y[..., :4], y[..., 4:]


class SkipsByLayers(columns.Layer):
    def __init__(self, fault: str = "") -> None:
        self.last = columns.Dense(5, 2)
        self.layers = columns.Layers(*(Both(fault if k == 1 else "") for k in range(MANY)))

    def forward(self, x: Any) -> Any:
        total = 0.0
        for layer in self.layers:
            x, y = layer(x)
            total = y + total
        return self.last(F.gelu(total))


@pytest.mark.parametrize("fault", ["", "residual"])
def test_repeated_layers_of_which_one_call_tells_are_tried_alike(fault: str) -> None:
    """Of three layers each was tried by itself, beside two that lay otherwise: what a step gives on was an output."""
    report = padiff.diff(Skips(), SkipsByLayers(fault), (X[:, :, 0],))
    assert {(one.candidate.path, str(one.what)) for one in report.sources} == (
        {("", "input 'x' of last")} if fault else set()
    ), str(report)
    assert report.aligned == (not fault)
