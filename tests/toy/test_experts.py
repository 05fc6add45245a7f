"""Mix experts of one shape: nothing but their place tells them apart, and each side keeps them in lists of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


class Expert(rows.Module):
    """Two layers."""

    def __init__(self) -> None:
        self.up, self.down = rows.Linear(4, 8), rows.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x)))


class Mixture(rows.Module):
    """Four experts, weighed by a gate."""

    def __init__(self) -> None:
        self.gate, self.experts = rows.Linear(4, 4), rows.ModuleList(*(Expert() for _ in range(4)))

    def forward(self, x: Any) -> Any:
        share = F.softmax(self.gate(x))
        parts = [expert(x) * share[:, n : n + 1] for n, expert in enumerate(self.experts)]
        return parts[0] + parts[1] + parts[2] + parts[3]


class Port(columns.Layer):
    """The same, with the experts' layers in two lists, and the sum the other way round."""

    def __init__(self, fault: str = "") -> None:
        self.w1, self.w2 = (columns.Layers(*(columns.Dense(*one) for _ in range(4))) for one in ((4, 8), (8, 4)))
        self.router, self.fault = columns.Dense(4, 4), fault

    def forward(self, x: Any) -> Any:
        share, total = F.softmax(self.router(x)), 0.0
        for n in (3, 2, 1, 0) if self.fault != "half" else (3, 2):
            part = self.w2[n](F.gelu(self.w1[n](x))) * share[:, n : n + 1]
            total = part * (2.0 if self.fault == "doubled" and n == 1 else 1.0) + total
        return total


def test_experts_are_told_apart_by_their_shares() -> None:
    report = padiff.diff(Mixture(), Port(), TOKENS)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == 18


@pytest.mark.parametrize("fault", ["doubled", "half"])
def test_a_wrong_mixture_is_no_pass(fault: str) -> None:
    report = padiff.diff(Mixture(), Port(fault), TOKENS)
    assert not report.aligned
    assert {source.candidate.path for source in report.sources if source.phase == "forward"} == {""}, str(report)


class Stacked(rows.Module):
    """Four gated experts, the matrices of each kind in one parameter ``[experts, in, out]``."""

    def __init__(self) -> None:
        self.gate = rows.Linear(4, 4)
        self.w1, self.w3, self.w2 = (rows.parameter(4, *shape, scale=0.5) for shape in ((4, 6), (4, 6), (6, 4)))

    def forward(self, x: Any) -> Any:
        share, total = F.softmax(self.gate(x)), 0.0
        for n in range(4):
            inner = F.silu(x @ self.w1[n]) * (x @ self.w3[n])
            total = inner @ self.w2[n] * share[:, n : n + 1] + total
        return total


class Packed(columns.Layer):
    """The same with what takes the same side by side, ``[experts, in, out]`` or ``[experts, out, in]``."""

    def __init__(self, fault: str = "", *, turned: bool, at_once: bool) -> None:
        self.router, self.fault, self.turned, self.at_once = columns.Dense(4, 4), fault, turned, at_once
        shapes = ((12, 4), (4, 6)) if turned else ((4, 12), (6, 4))
        self.up, self.down = (columns.weight(4, *shape, scale=0.5) for shape in shapes)

    def forward(self, x: Any) -> Any:
        share = F.softmax(self.router(x))
        up, down = ((one.transpose(0, 2, 1) if self.turned else one) for one in (self.up, self.down))
        if self.at_once:
            both = x @ up
            inner = self._gated(both[..., :6]) * both[..., 6:]
            return ((inner @ down) * share.transpose(1, 0).reshape(4, -1, 1)).sum(0)
        total = 0.0
        for n in range(4):
            both = x @ up[n]
            total = (self._gated(both[:, :6]) * both[:, 6:]) @ down[n] * share[:, n : n + 1] + total
        return total

    def _gated(self, x: Any) -> Any:
        return F.gelu(x) if self.fault == "gelu" else F.silu(x)


@pytest.mark.parametrize("turned", [False, True], ids=["as there", "turned"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_stacks_of_experts_are_packed_on_one_side(turned: bool, at_once: bool) -> None:
    report = padiff.diff(Stacked(), Packed(turned=turned, at_once=at_once), TOKENS)
    assert report.aligned, str(report)
    assert not report.unmatched, str(report)
    report = padiff.diff(Packed(turned=turned, at_once=at_once), Stacked(), TOKENS)
    assert report.aligned, str(report)
    report = padiff.diff(Stacked(), Packed("gelu", turned=turned, at_once=at_once), TOKENS)
    assert [source.candidate.path for source in report.sources] == [""], str(report)


class AlongAnyAxis(columns.Layer):
    """The same of stacks whose axes [experts, in, out] lie in some order, with biases [experts, out]."""

    def __init__(self, orders: str, hidden: int, count: int, fault: str = "", *, at_once: bool) -> None:
        self.orders = [tuple(map("eio".index, order)) for order in orders.split()]
        self.fault, self.at_once = fault, at_once
        self.router = columns.Dense(4, count, bias=False)
        shapes = (count, 4, 2 * hidden), (count, hidden, 4)
        both = zip(self.orders, shapes, strict=True)
        self.gate_up, self.down = (columns.weight(*(shape[axis] for axis in order)) for order, shape in both)
        self.shifts, self.ends = columns.weight(count, 2 * hidden), columns.weight(count, 4)

    def forward(self, x: Any) -> Any:
        share, found = F.softmax(self.router(x)), []
        count = share.shape[-1]
        both = zip(self.orders, (self.gate_up, self.down), strict=True)
        into, back = (one.transpose(*np.argsort(order).tolist()) for order, one in both)
        if self.at_once:
            both = x.reshape(1, *x.shape) @ into + self.shifts.reshape(count, 1, -1)
            out = self._gated(both) @ back
            out = out if self.fault == "no bias" else out + self.ends.reshape(count, 1, -1)
            return (out * share.transpose(1, 0).reshape(count, -1, 1)).sum(0)
        for n in range(count):
            out = self._gated(x @ into[n] + self.shifts[n]) @ back[n]
            found.append((out if self.fault == "no bias" else out + self.ends[n]) * share[:, n : n + 1])
        return sum(found)

    def _gated(self, both: Any) -> Any:
        half = both.shape[-1] // 2
        return (F.gelu if self.fault == "gelu" else F.silu)(both[..., :half]) * both[..., half:]


class Gates(rows.Module):
    """The same with experts in a list."""

    def __init__(self, hidden: int, count: int) -> None:
        self.gate = rows.Linear(4, count, bias=False)
        self.w1, self.w3, self.w2 = (
            rows.ModuleList(*(rows.Linear(*shape) for _ in range(count)))
            for shape in ((4, hidden), (4, hidden), (hidden, 4))
        )

    def forward(self, x: Any) -> Any:
        share, total = F.softmax(self.gate(x)), 0.0
        for n, (gate, up, down) in enumerate(zip(self.w1, self.w3, self.w2, strict=True)):
            total = down(F.silu(gate(x)) * up(x)) * share[:, n : n + 1] + total
        return total


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize(
    ("orders", "count"),
    [("ieo ieo", 3), ("oei oei", 3), ("ioe ioe", 3), ("ioe eio", 3), ("ieo ieo", 4), ("oei oei", 4), ("ieo oei", 4)],
)
def test_experts_are_stacked_along_any_axis(orders: str, count: int, at_once: bool) -> None:
    """Those on a middle axis had no counterpart, nor had those on a last one whose biases lie along a first one.

    Of as many as they are wide numbers tell which axis is summed with data: it stacks nothing.
    """
    listed, stacked = Gates(8, count), AlongAnyAxis(orders, 8, count, at_once=at_once)
    for sides in ((listed, stacked), (stacked, listed)):
        report = padiff.diff(*sides, TOKENS)
        assert report.aligned, str(report)
    wrong = padiff.diff(listed, AlongAnyAxis(orders, 8, count, "gelu", at_once=at_once), TOKENS)
    assert [one.candidate.path for one in wrong.sources] == [""], str(wrong)
    assert wrong.transfer is not None
    assert not wrong.transfer.unmatched_reference + wrong.transfer.unmatched_candidate
