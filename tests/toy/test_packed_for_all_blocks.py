"""Pack the layers of all blocks in one that is called in front of them (FiLM): scales and shifts of what each gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X, TIME = (np.random.default_rng(0).standard_normal((3, size)).astype(np.float32) for size in (4, 6))


class Block(rows.Module):
    """A block that makes its scale and its shift itself, each in a layer or both in one."""

    def __init__(self, apart: bool) -> None:
        self.up, self.down = rows.Linear(4, 4), rows.Linear(4, 4)
        if apart:
            self.scale, self.shift = rows.Linear(6, 4), rows.Linear(6, 4)
        else:
            self.film = rows.Linear(6, 8)

    def forward(self, x: Any, time: Any) -> Any:
        if hasattr(self, "film"):
            both = self.film(time)
            scale, shift = both[..., :4], both[..., 4:]
        else:
            scale, shift = self.scale(time), self.shift(time)
        return x + self.down(F.tanh(self.up(x) * scale + shift))


class Model(rows.Module):
    def __init__(self, count: int, apart: bool, last_first: bool = False) -> None:
        self.last_first = last_first
        self.time, self.head = rows.Linear(6, 6), rows.Linear(4, 3)
        self.blocks = rows.ModuleList(*(Block(apart) for _ in range(count)))

    def forward(self, x: Any, time: Any) -> Any:
        time = F.tanh(self.time(time))
        for block in [*self.blocks][:: -1 if self.last_first else 1]:
            x = block(x, time)
        return self.head(x)


class PortBlock(columns.Layer):
    def __init__(self) -> None:
        self.fc1, self.fc2 = columns.Dense(4, 4), columns.Dense(4, 4)

    def forward(self, x: Any, scale: Any, shift: Any) -> Any:
        return x + self.fc2(F.tanh(self.fc1(x) * scale + shift))


class Port(columns.Layer):
    """The same with one layer for all blocks, whose parts lie in an order of its own."""

    def __init__(self, count: int, order: str, fault: str = "", last_first: bool = False) -> None:
        self.last_first = last_first
        self.film, self.embed, self.out = columns.Dense(6, 8 * count), columns.Dense(6, 6), columns.Dense(4, 3)
        self.layers = columns.Layers(*(PortBlock() for _ in range(count)))
        self.count, self.order, self.fault = count, order, fault

    def forward(self, x: Any, time: Any) -> Any:
        every = self.film(F.tanh(self.embed(time)))
        part = [every[..., 4 * i : 4 * i + 4] for i in range(2 * self.count)]
        both = [*zip(part[::2], part[1::2], strict=True)]
        if self.order == "scales first":
            both = [*zip(part[: self.count], part[self.count :], strict=True)]
        if self.order == "last first":
            both.reverse()
        if self.order == "shift first":
            both = [one[::-1] for one in both]
        if self.fault == "roles":
            both[1] = both[1][::-1]
        if self.fault == "blocks":
            both[0], both[1] = both[1], both[0]
        calls = [*zip(self.layers, both, strict=True)]
        for layer, (scale, shift) in calls[:: -1 if self.last_first else 1]:
            x = layer(x, scale, shift)
        return self.out(x)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("apart", [True, False], ids=["apart", "in one"])
@pytest.mark.parametrize("order", ["blocks first", "scales first"])
def test_one_order_for_all_blocks_is_a_layout(apart: bool, count: int, order: str) -> None:
    """Nothing told the order, as the reference's blocks call these layers, and the port's model does."""
    report = padiff.diff(Model(count, apart), Port(count, order), (X, TIME))
    assert report.aligned, str(report)


def test_shifts_may_come_before_scales_in_all_blocks() -> None:
    report = padiff.diff(Model(3, apart=True), Port(3, "shift first"), (X, TIME))
    assert report.aligned, str(report)


def test_blocks_may_lie_as_they_are_numbered() -> None:
    """The last one runs first: a layer for all of them holds them as they run, or as both sides list them."""
    for order in ("blocks first", "last first"):
        sides = Model(4, apart=False, last_first=True), Port(4, order, last_first=True)
        report = padiff.diff(*sides, (X, TIME))
        assert report.aligned, str(report)


@pytest.mark.parametrize("order", ["blocks first", "scales first"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_another_order_in_one_block_is_a_fault(count: int, order: str) -> None:
    report = padiff.diff(Model(count, apart=True), Port(count, order, "roles"), (X, TIME))
    assert [source.candidate.path for source in report.sources] == ["layers.1"], str(report)


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "in one"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_another_block_gets_is_a_fault(count: int, apart: bool) -> None:
    report = padiff.diff(Model(count, apart), Port(count, "blocks first", "blocks"), (X, TIME))
    assert {source.candidate.path for source in report.sources} == {"layers.0", "layers.1"}, str(report)


class Branch(rows.Module):
    def __init__(self, inside: int) -> None:
        self.reduce, self.out = rows.Linear(6, inside), rows.Linear(inside, 4)

    def forward(self, x: Any) -> Any:
        return self.out(F.tanh(self.reduce(x)))


class Branches(rows.Module):
    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.branch1, self.branch2, self.branch3 = map(Branch, sizes)

    def forward(self, x: Any) -> Any:
        return F.concat([self.branch1(x), self.branch2(x), self.branch3(x)])


class PackedBranches(columns.Layer):
    """The same, with one layer for what all branches begin with, in some order."""

    def __init__(self, sizes: tuple[int, ...], order: tuple[int, ...]) -> None:
        self.all, self.sizes, self.order = columns.Dense(6, sum(sizes)), sizes, order
        self.out1, self.out2, self.out3 = (columns.Dense(size, 4) for size in sizes)

    def forward(self, x: Any) -> Any:
        parts, at = {}, 0
        for place in self.order:
            parts[place] = F.tanh(self.all(x)[..., at : at + self.sizes[place]])
            at += self.sizes[place]
        return F.concat([self.out1(parts[0]), self.out2(parts[1]), self.out3(parts[2])])


@pytest.mark.parametrize("order", [(1, 2, 0), (2, 1, 0)])
@pytest.mark.parametrize("sizes", [(5, 5, 5), (3, 4, 5)], ids=["alike", "of other sizes"])
def test_branches_that_are_no_list_lie_in_any_order(sizes: tuple[int, ...], order: tuple[int, ...]) -> None:
    """A number in a module's own name says nothing of what runs behind what."""
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    report = padiff.diff(Branches(sizes), PackedBranches(sizes, order), x)
    assert report.aligned, str(report)
