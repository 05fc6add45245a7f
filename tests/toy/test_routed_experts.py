"""Compare mixtures of experts: those in a list, each on its own tokens, with products of stacks of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.numerics import Array
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

WIDTH = 4


def chosen(share: Array, room: int) -> Array:
    """Return which expert takes which token: the two best, each as many tokens as it has room for."""
    found = np.zeros_like(share)
    np.put_along_axis(found, np.argsort(-share, -1)[:, :2], 1, -1)
    return found * (np.cumsum(found, 0) <= room)


class Listed(rows.Module):
    """Experts in lists of layers; one is called on the tokens that are its own, and not at all where it has none."""

    def __init__(self, hidden: int, count: int, room: int) -> None:
        self.gate, self.room = rows.Linear(WIDTH, count, bias=False), room
        self.up, self.down = (
            rows.ModuleList(*(rows.Linear(*both, bias=False) for _ in range(count)))
            for both in ((WIDTH, hidden), (hidden, WIDTH))
        )

    def forward(self, x: Any) -> Any:
        share, total = F.softmax(self.gate(x)), x * 0.0
        for n, (up, down, taken) in enumerate(
            zip(self.up, self.down, chosen(share.data, self.room).T != 0, strict=True)
        ):
            mine = np.flatnonzero(taken)
            if len(mine):
                back = type(x)(np.eye(len(x.data), dtype=np.float32)[:, mine])
                total = total + back @ (down(F.silu(up(x[mine]))) * share[mine, n : n + 1])
        return total


class Stacked(columns.Layer):
    """The same as products of stacks, with the tokens of each expert side by side: a product with what says whose.

    That is a number, or made of what the router gave.
    """

    def __init__(self, hidden: int, count: int, room: int, *, traced: bool, turned: bool, fault: str = "") -> None:
        self.router, self.room = columns.Dense(WIDTH, count, bias=False), room
        shapes = (WIDTH, hidden), (hidden, WIDTH)
        self.w1, self.w2 = (columns.weight(count, *shape[:: -1 if turned else 1]) for shape in shapes)
        self.traced, self.turned, self.fault = traced, turned, fault

    def forward(self, x: Any) -> Any:
        share = F.softmax(self.router(x))
        taken = chosen(share.data, self.room + (self.fault == "room"))
        slots = np.zeros((taken.shape[1], int(taken.sum(0).max()), len(taken)), np.float32)
        for n, column in enumerate(taken.T):
            mine = np.flatnonzero(column)
            slots[n, np.arange(len(mine)), mine] = 1
        whose, share = type(x)(slots), share.transpose(1, 0).reshape(len(slots), 1, len(taken))
        if self.traced:
            whose = whose * (F.detach(share) / F.detach(share))
        if self.fault == "order":
            share = share[[1, 0, *range(2, len(slots))]]
        w1, w2 = (w.transpose(0, 2, 1) if self.turned else w for w in (self.w1, self.w2))
        inner = (whose @ x.reshape(1, *x.shape)) @ w1
        if self.fault == "one":
            inner = inner * type(x)(np.array([1, 1.01, *[1] * (len(slots) - 2)], np.float32)[:, None, None])
        found = (F.gelu if self.fault == "gelu" else F.silu)(inner) @ w2
        return ((whose * share).transpose(0, 2, 1) @ found).sum(0)


TOKENS = np.random.default_rng(1).standard_normal((12, WIDTH)).astype(np.float32)
LISTED = pytest.mark.parametrize("listed", [False, True], ids=["reference stacks", "reference lists"])
SIZES = pytest.mark.parametrize(
    ("hidden", "count", "traced"),
    [(12, 9, False), (8, 4, True), (WIDTH, 3, False)],
    ids=["threefold", "double, routed", "square"],
)


@LISTED
@SIZES
@pytest.mark.parametrize("turned", [False, True], ids=["in, out", "out, in"])
def test_experts_lie_as_the_code_uses_them(turned: bool, hidden: int, count: int, traced: bool, listed: bool) -> None:
    """As many experts as the square of how much wider they are inside: sizes alone said that each halves its rows.

    And a stack that narrows was taken for the list of those that widen: these take the tokens, and what dispatches them
    to the stack is made by the router as well. Of squares the second was taken for a bias of the first.
    """
    ours, theirs = Listed(hidden, count, 2), Stacked(hidden, count, 2, traced=traced, turned=turned)
    report = padiff.diff(*((ours, theirs) if listed else (theirs, ours)), TOKENS)
    assert report.aligned, str(report)


@LISTED
@SIZES
@pytest.mark.parametrize("fault", ["one", "gelu", "order", "room"])
def test_a_fault_in_routed_experts_is_named_once(
    fault: str, hidden: int, count: int, traced: bool, listed: bool
) -> None:
    ours, theirs = Listed(hidden, count, 2), Stacked(hidden, count, 2, traced=traced, turned=False, fault=fault)
    report = padiff.diff(*((ours, theirs) if listed else (theirs, ours)), TOKENS)
    sources = [(source.phase, source.reference.path, source.candidate.path) for source in report.sources]
    assert sources == [("forward", "", "")], str(report)


class Pairs(rows.Module):
    """Pairs of square layers in lists, one behind the other."""

    def __init__(self) -> None:
        self.first, self.second = (
            rows.ModuleList(*(rows.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))) for _ in range(2)
        )

    def forward(self, x: Any) -> Any:
        for one, other in zip(self.first, self.second, strict=True):
            x = F.tanh(other(F.silu(one(x))))
        return x


class StackedPairs(columns.Layer):
    """The same with stacks of the first and of the second, of which each step takes one."""

    def __init__(self, *, turned: bool, fault: str = "") -> None:
        self.a, self.b = (columns.weight(3, WIDTH, WIDTH) for _ in range(2))
        self.turned, self.fault = turned, fault

    def forward(self, x: Any) -> Any:
        for n in range(3):
            a, b = (w[n].transpose(1, 0) if self.turned else w[n] for w in (self.a, self.b))
            inner = (F.gelu if self.fault == "gelu" and n == 1 else F.silu)(x @ a)
            x = F.tanh(inner @ b)
        return x


@LISTED
@pytest.mark.parametrize("turned", [False, True], ids=["in, out", "out, in"])
@pytest.mark.parametrize("fault", ["", "gelu"])
def test_squares_that_stacks_hold_are_used_one_by_one(fault: str, turned: bool, listed: bool) -> None:
    ours, theirs = Pairs(), StackedPairs(turned=turned, fault=fault)
    report = padiff.diff(*((ours, theirs) if listed else (theirs, ours)), TOKENS)
    assert report.aligned is (not fault), str(report)
    sources = [(source.phase, source.reference.path, source.candidate.path) for source in report.sources]
    assert len(sources) == bool(fault), str(report)
