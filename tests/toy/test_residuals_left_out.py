"""A port that leaves out one residual connection: its layers are matched with those of their own blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


class Dense(rows.Module):
    """Layers each of which takes what all before it gave."""

    def __init__(self) -> None:
        self.one, self.two, self.three = rows.Linear(4, 3), rows.Linear(7, 3), rows.Linear(10, 4)

    def forward(self, x: Any) -> Any:
        y = F.concat([x, F.relu(self.one(x))])
        return x + self.three(F.concat([y, F.relu(self.two(y))])) * 0.2


class Group(rows.Module):
    def __init__(self) -> None:
        self.first, self.second, self.third = Dense(), Dense(), Dense()

    def forward(self, x: Any) -> Any:
        return x + self.third(self.second(self.first(x))) * 0.2


class Trunk(rows.Module):
    def __init__(self) -> None:
        self.head, self.body, self.tail = rows.Linear(4, 4), rows.Sequential(Group(), Group()), rows.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        x = self.head(x)
        return self.tail(x + self.body(x))


class Growing(columns.Layer):
    def __init__(self, residual: bool) -> None:
        self.fuse, self.residual = columns.Dense(10, 4), residual
        self.grow = columns.Layers(columns.Dense(4, 3), columns.Dense(7, 3))

    def forward(self, x: Any) -> Any:
        y = x
        for layer in self.grow:
            y = F.concat([y, F.relu(layer(y))])
        y = self.fuse(y) * 0.2
        return x + y if self.residual else y


class Grouped(columns.Layer):
    def __init__(self, residuals: tuple[bool, ...]) -> None:
        self.inner = columns.Layers(*map(Growing, residuals))

    def forward(self, x: Any) -> Any:
        y = x
        for block in self.inner:
            y = block(y)
        return x + y * 0.2


class Port(columns.Layer):
    def __init__(self, left_out: str) -> None:
        self.end, self.start = columns.Dense(4, 2), columns.Dense(4, 4)
        self.groups = columns.Layers(
            *(Grouped(tuple(f"{i}.inner.{k}" != left_out for k in range(3))) for i in range(2))
        )

    def forward(self, x: Any) -> Any:
        x = y = self.start(x)
        for group in self.groups:
            y = group(y)
        return self.end(x + y)


@pytest.mark.parametrize("left_out", ["0.inner.0", "0.inner.2", "1.inner.1"])
def test_one_residual_left_out_is_one_fault(left_out: str) -> None:
    """ESRGAN's: layers of other blocks that look alike from there were matched, and four sources told of one fault."""
    assert padiff.diff(Trunk(), Port(""), X).aligned
    report = padiff.diff(Trunk(), Port(left_out), X)
    assert {source.candidate.path for source in report.sources} == {f"groups.{left_out}"}, str(report)


class Wrapped(rows.Module):
    """A block whose layers lie in a sequence of their own."""

    def __init__(self) -> None:
        self.net = rows.Sequential(rows.Linear(4, 8), rows.Sequential(rows.LayerNorm(8), rows.Linear(8, 4)))

    def forward(self, x: Any) -> Any:
        return self.net(x) + x


class Unwrapped(columns.Layer):
    """The same with all layers in the block, and without what the block is given."""

    def __init__(self) -> None:
        self.up, self.norm, self.down = columns.Dense(4, 8), columns.LayerNormalization(8), columns.Dense(8, 4)

    def forward(self, x: Any) -> Any:
        return self.down(self.norm(self.up(x)))


def test_the_first_of_several_blocks_is_matched_as_the_others() -> None:
    """What the first gives is what a sequence inside gives: it was matched with that, and was a source of its own."""
    report = padiff.diff(
        rows.Sequential(*(Wrapped() for _ in range(3))), columns.Stack(*(Unwrapped() for _ in range(3))), X
    )
    assert {(one.reference.path, one.candidate.path) for one in report.sources} == {(str(i), str(i)) for i in range(3)}
    assert str(report).startswith("not aligned: 1 source in 3 places"), str(report)
