"""Hold tables of vectors in modules here and as bare parameters there: where they go tells which is which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.engine import record_once
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

from .test_compare import places

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


class Placed(rows.Module):
    """Learned positions, kept as (1, time, features)."""

    def __init__(self) -> None:
        self.first, self.positions, self.head = rows.Linear(8, 8), rows.parameter(1, 3, 8), rows.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.head(F.tanh(self.first(x) + self.positions))


class TimeFirst(columns.Layer):
    """The same, kept as (time, 1, features), or wrong."""

    def __init__(self, factor: float = 1.0) -> None:
        self.out, self.table, self.inner = columns.Dense(8, 2), columns.weight(3, 1, 8), columns.Dense(8, 8)
        self.factor = factor

    def forward(self, x: Any) -> Any:
        x = self.inner(x.transpose(1, 0, 2)) + self.table * self.factor
        return self.out(F.tanh(x)).transpose(1, 0, 2)


@pytest.mark.parametrize("factor", [1.0, 1.01])
@pytest.mark.parametrize("turned", [False, True])
def test_an_axis_of_length_one_may_stand_elsewhere(tmp_path: Path, factor: float, turned: bool) -> None:
    """A table that is broadcast along the batch was called one of another shape."""
    models = (Placed(), TimeFirst(factor))[:: -1 if turned else 1]
    report = padiff.diff(*models, TOKENS)
    assert report.aligned is (factor == 1), str(report)
    assert not report.transfer.unmatched_candidate, str(report)  # type: ignore[union-attr]
    for model, name in zip(models, "ab", strict=True):
        record_once(model, TOKENS, tmp_path / name)
    compared = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert places(compared) == places(report), str(compared)


WORDS, QUESTION = (np.random.default_rng(1).integers(0, 7, size) for size in ((2, 5), (2,)))


class Memory(rows.Module):
    """A memory that looks words up in a table for each hop, and holds what times add in one parameter."""

    def __init__(self) -> None:
        self.tables = rows.ModuleList(*(rows.Embedding(7, 4) for _ in range(3)))
        self.times = rows.parameter(3, 5, 4)

    def forward(self, words: Any, question: Any) -> Any:
        u = self.tables[0](question)
        for hop in range(2):
            m, c = (self.tables[at](words) + self.times[at] for at in (hop, hop + 1))
            p = F.softmax((m * u.reshape(2, 1, 4)).sum(-1))
            u = u + (p.reshape(2, 5, 1) * c).sum(1)
        return u @ self.tables[2].weight.transpose(1, 0)


class MemoryPort(columns.Layer):
    """The same the other way round: the tables in one parameter, and times in a table for each hop."""

    def __init__(self, fault: str = "") -> None:
        self.stacked, self.fault = columns.weight(3, 7, 4), fault
        self.hops = columns.Layers(*(columns.Embed(5, 4) for _ in range(3)))

    def forward(self, words: Any, question: Any) -> Any:
        places = columns.Tensor(np.arange(5))
        u = F.embedding(question, self.stacked[0])
        for hop in range(2):
            at = hop if self.fault == "hop" else hop + 1
            m = F.embedding(words, self.stacked[hop]) + self.hops[hop](places)
            c = F.embedding(words, self.stacked[at]) + self.hops[hop + 1](places)
            p = F.softmax((m @ u.reshape(2, 4, 1)).reshape(2, 5))
            u = u + (p.reshape(2, 1, 5) @ c).reshape(2, 4)
        return u @ self.stacked[2].transpose(1, 0)


@pytest.mark.parametrize("swapped", [False, True])
def test_tables_in_a_list_are_what_one_parameter_stacks(swapped: bool) -> None:
    """Each was matched with a table of the other list, `of another shape`, and both stacks had no counterpart."""
    models = Memory(), MemoryPort()
    report = padiff.diff(*(models[::-1] if swapped else models), (WORDS, QUESTION))
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert not report.transfer.unverified, str(report)


def test_a_fault_behind_tables_that_are_stacked_is_one_source() -> None:
    report = padiff.diff(Memory(), MemoryPort("hop"), (WORDS, QUESTION))
    assert str(report).startswith("not aligned: 1 source"), str(report)
    assert [one.phase.value for one in report.sources] == ["forward"], str(report)
