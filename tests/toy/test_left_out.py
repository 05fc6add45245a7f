"""Leave a block out of the run: the code that leaves it out is the one source, and the other blocks stay whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

ROWS = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


class Block(rows.Module):
    def __init__(self) -> None:
        self.a, self.bn, self.b = rows.Linear(6, 6), rows.BatchNorm(6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.b(F.relu(self.bn(self.a(x)))))


class Net(rows.Module):
    """Three equal blocks in two stages."""

    def __init__(self) -> None:
        self.stem, self.head = rows.Linear(4, 6), rows.Linear(6, 3)
        self.one, self.two = rows.Sequential(Block(), Block()), rows.Sequential(Block())

    def forward(self, x: Any) -> Any:
        return self.head(self.two(self.one(F.relu(self.stem(x)))))


class PortedBlock(columns.Layer):
    def __init__(self) -> None:
        self.c, self.norm, self.d = columns.Dense(6, 6), columns.BatchNormalization(6), columns.Dense(6, 6)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.d(F.relu(self.norm(self.c(x)))))


class Port(columns.Layer):
    """The same blocks in one list."""

    def __init__(self, without: int | None) -> None:
        self.inner, self.trunk = columns.Dense(4, 6), columns.Layers(*(PortedBlock() for _ in range(3)))
        self.out, self.without = columns.Dense(6, 3), without

    def forward(self, x: Any) -> Any:
        x = F.relu(self.inner(x))
        for i, block in enumerate(self.trunk):
            if i != self.without:
                x = block(x)
        return self.out(x)


@pytest.mark.parametrize(("without", "between"), [(0, ("inner", "trunk.1")), (2, ("trunk.1", "out"))])
def test_a_block_that_is_not_run_is_one_source(without: int, between: tuple[str, str]) -> None:
    """Padiff took the other blocks apart for it: eight sources, six of them gradients and buffers of the model."""
    report = padiff.diff(Net(), Port(without), ROWS)
    (source,) = report.sources
    assert (source.candidate.path, source.between) == ("", between), str(report)


def test_a_block_too_many_is_the_source() -> None:
    report = padiff.diff(Port(1), Net(), ROWS)
    (source,) = report.sources
    assert source.candidate.path == "one.1", str(report)
