"""A table that code makes of indices is a constant, whatever the other side holds: it is compared, and never copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, rows

TOKENS = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
_N, _K = np.mgrid[:8, :8]
COSINES = np.cos(np.pi * (_N + 0.5) * (_K + 0.5) / 8)
SINES = np.sin(np.pi * (_N + 0.5) * (_K + 0.5) / 8)
HARTLEY = np.cos(np.pi * _N * _K / 4) + np.sin(np.pi * _N * _K / 4)
"""Rows and columns of each are orthogonal: no correlation tells that code made them, nor what they have in common."""
SLOW = [wave(0.3 * np.arange(64)).reshape(8, 8) for wave in (np.sin, np.cos)]
"""Nothing comes up again in these, which have nothing in common: neighbours alone tell that code made them."""
RANDOM = np.random.default_rng(1).standard_normal((8, 8))


class Transformed(rows.Module):
    def __init__(self, table: Any) -> None:
        self.first, self.last, self.table = rows.Linear(8, len(table)), rows.Linear(8, 8), rows.buffer(table)

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x) @ self.table)


class Port(columns.Layer):
    def __init__(self, table: Any) -> None:
        self.last, self.first = columns.Dense(8, 8), columns.Dense(8, len(table))
        self.basis = columns.statistic(table)

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x) @ self.basis)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(COSINES, SINES), (COSINES, HARTLEY), (RANDOM, COSINES), (RANDOM, np.linspace(-1, 1, 64).reshape(8, 8)), SLOW],
)
def test_a_wrong_table_is_named(ours: Any, theirs: Any) -> None:
    """N-BEATS' basis of another period was copied as a codebook is: the wrong port was aligned."""
    report = padiff.diff(Transformed(ours), Port(theirs), TOKENS)
    (source,) = report.sources
    assert (source.phase, source.what.name) == (Phase.PARAMETER, "basis"), str(report)


@pytest.mark.parametrize("drawn", ["standard_normal", "random", "signs"])
def test_what_both_have_sampled_is_copied(drawn: str) -> None:
    first, second = np.random.default_rng(1), np.random.default_rng(2)
    tables = [
        random.choice([-0.3, 0.3], (8, 8)) if drawn == "signs" else getattr(random, drawn)((8, 8))
        for random in (first, second)
    ]
    report = padiff.diff(Transformed(tables[0]), Port(tables[1]), TOKENS)
    assert report.aligned, str(report)
