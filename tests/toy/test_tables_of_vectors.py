"""Hold tables of vectors in modules here and as bare parameters there: where they go tells which is which."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

TOKENS = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)


class Bare(rows.Module):
    """Learned positions of rows and of columns, at the model itself."""

    def __init__(self) -> None:
        self.row, self.col = rows.parameter(3, 4), rows.parameter(3, 4)
        self.mix, self.head = rows.Linear(8, 8), rows.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.head(F.tanh(self.mix(x + F.concat([self.col, self.row]))))


class Tables(columns.Layer):
    """The same in tables, listed the other way round."""

    def __init__(self, fault: str = "") -> None:
        self.col_embed, self.row_embed = columns.Embed(3, 4), columns.Embed(3, 4)
        self.out, self.first, self.fault = columns.Dense(8, 2), columns.Dense(8, 8), fault

    def forward(self, x: Any) -> Any:
        places = columns.Tensor(np.arange(3))
        row, col = self.row_embed(places), self.col_embed(places)
        both = [row, col] if self.fault == "crossed" else [col, row]
        return self.out(F.tanh(self.first(x + F.concat(both))))


def test_each_table_is_found() -> None:
    """Version 0.5 took one for the other, and told that a table and a parameter had no counterpart."""
    report = padiff.diff(Bare(), Tables(), TOKENS)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == 6, str(report)


def test_crossed_tables_are_a_fault() -> None:
    (source,) = padiff.diff(Bare(), Tables("crossed"), TOKENS).sources
    assert source.candidate.path == ""
    assert source.between is not None
    assert source.between[1] == "first"


def test_the_other_way_round() -> None:
    report = padiff.diff(Tables(), Bare(), TOKENS)
    assert report.aligned, str(report)
