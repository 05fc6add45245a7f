"""Compare models that walk a tree: one line makes each node, and all of them are the code of one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

SIZE = 4
TREE = (((0, 1), 2), (3, (4, 5)))
X = np.random.default_rng(0).standard_normal((3, 6, SIZE), dtype=np.float32)


def tree(base: Any, linear: Any, fault: str = "") -> Any:
    """Return a model whose nodes gate what both children hold: a Tree-LSTM, but for its output gate."""

    class Tree(base):
        def __init__(self) -> None:
            self.leaf, self.left, self.right, self.head = (linear(SIZE, size * SIZE) for size in (1, 3, 3, 1))

        def node(self, left: Any, right: Any) -> Any:
            gates = self.left(left[0]) + self.right(right[0])
            new, keep, take = (gates[:, place * SIZE : (place + 1) * SIZE] for place in range(3))
            if fault == "gates":
                keep, take = take, keep
            held = F.tanh(new) + F.sigmoid(keep) * left[1] + F.sigmoid(take) * (left if fault == "held" else right)[1]
            return F.tanh(held), held

        def made(self, leaves: Any, tree: Any) -> Any:
            if isinstance(tree, int):
                return F.tanh(leaves[:, tree]), leaves[:, tree]
            return self.node(self.made(leaves, tree[0]), self.made(leaves, tree[1]))

        def forward(self, x: Any) -> Any:
            return self.head(self.made(self.leaf(x), TREE)[0])

    return Tree()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("", []),
        (
            "gates",
            ["sigmoid of getitem(_, (:, 4:8)) of what add gives", "sigmoid of getitem(_, (:, 8:12)) of what add gives"],
        ),
        ("held", ["getitem(_, (:, 1)) of the output of leaf", "getitem(_, (:, 0)) of the output of leaf"]),
    ],
)
def test_what_a_line_takes_in_each_node_is_told(fault: str, told: list[str]) -> None:
    """What the reference takes there beside the same is tried first: of hundreds, 32 were, and no cause was told."""
    report = padiff.diff(tree(rows.Module, rows.Linear), tree(columns.Layer, columns.Dense, fault), X)
    assert report.aligned is not bool(fault), str(report)
    assert not fault or "1 source in 3 places" in str(report), str(report)
    first = "mul takes {} in the reference, {} in the candidate".format(*told) if told else ""
    assert all(first in str(one.cause) or one.cause.name == "code_alone" for one in report.sources), str(report)
    assert first in str(report)


def shares(base: Any, linear: Any, swapped: bool = False) -> Any:
    """Return a model that weighs the halves of what a layer gives by one function, along another axis each."""

    class Model(base):
        def __init__(self) -> None:
            self.both, self.out = linear(SIZE, 2 * SIZE), linear(SIZE, SIZE)

        def forward(self, x: Any) -> Any:
            made = self.both(x)
            one, two = made[..., :SIZE], made[..., SIZE:]
            one, two = (two, one) if swapped else (one, two)
            one, two = F.softmax(one, -1), F.softmax(two, 1)
            return self.out((two + 1.0) * one * F.sigmoid(one * 1.7))

    return Model()


@pytest.mark.parametrize("swapped", [False, True])
def test_calls_of_one_line_are_no_rounds_of_each_other(swapped: bool) -> None:
    """What the first call gives was right in place of the second's, and the cause that its kernel is another one."""
    report = padiff.diff(shares(rows.Module, rows.Linear), shares(columns.Layer, columns.Dense, swapped), X)
    assert report.aligned is not swapped, str(report)
    told = [str(one.cause) for one in report.sources]
    assert all("softmax takes getitem(_, (Ellipsis, :4)) of the output of both in the" in one for one in told), told
    assert len(told) == swapped
