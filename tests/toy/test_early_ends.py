"""Take blocks apart that end earlier than their matches, whatever else is wrong inside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((5, 6), dtype=np.float32)
COUNT = 3


class Block(rows.Module):
    """Two branches, added up and rectified."""

    def __init__(self) -> None:
        self.straight, self.across = rows.Linear(6, 6), rows.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return F.relu(self.straight(x) + self.across(x) + x)


class Model(rows.Module):
    def __init__(self) -> None:
        self.blocks, self.head = rows.ModuleList(*(Block() for _ in range(COUNT))), rows.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Port(columns.Layer):
    """The same branches, added up by what is given."""

    def __init__(self, added: Callable[[Any, Any, Any], Any]) -> None:
        self.added, self.first, self.second = added, columns.Dense(6, 6), columns.Dense(6, 6)

    def forward(self, x: Any) -> Any:
        return self.added(self.first(x), self.second(x), x)


class Ported(columns.Layer):
    """Applies to what its blocks give what they do not apply themselves."""

    def __init__(self, added: Callable[[Any, Any, Any], Any], behind: Callable[[Any], Any]) -> None:
        self.layers, self.out = columns.Layers(*(Port(added) for _ in range(COUNT))), columns.Dense(6, 2)
        self.behind = behind

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = self.behind(layer(x))
        return self.out(x)


def told(added: Callable[[Any, Any, Any], Any], behind: Callable[[Any], Any]) -> padiff.Report:
    return padiff.diff(Model(), Ported(added, behind), (X,))


def test_blocks_that_are_rectified_outside_are_right() -> None:
    report = told(lambda a, b, x: a + b + x, F.relu)
    assert report.aligned, str(report)


@pytest.mark.parametrize("added", [lambda a, b, x: a * 0.5 + b + x, lambda a, b, x: a + F.tanh(b) + x])
def test_a_fault_in_them_is_told_without_where_they_end(added: Callable[[Any, Any, Any], Any]) -> None:
    """It was told as one more function that one side alone applies."""
    report = told(added, F.relu)
    assert not report.aligned
    assert "relu" not in str(report), str(report)
    assert str(report).startswith("not aligned: 1 source "), str(report)


def test_what_a_block_lacks_at_its_end_is_told_in_the_block() -> None:
    """The code around only lays out anew what it is given."""
    report = told(lambda a, b, x: a + b + x, lambda x: x.reshape(1, 5, 6).reshape(5, 6))
    assert {source.candidate.path for source in report.sources} == {f"layers.{i}" for i in range(COUNT)}, str(report)
