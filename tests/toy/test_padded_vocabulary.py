"""Compare two recorded runs of which one pads its vocabulary with rows that no token names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.distributed._shared import chained
from padiff.testing.toy import rows
from padiff.trace import Flow

TOKENS = np.array([[0, 3, 4, 1], [2, 2, 0, 4]])


class Words(rows.Module):
    """A table, a layer and a number for each row."""

    def __init__(self, entries: int) -> None:
        super().__init__()
        self.table = rows.Embedding(entries, 3)
        self.inner = rows.Linear(3, 3)
        self.head = rows.Linear(3, entries)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.inner(self.table(tokens)))


def words(entries: int, *, like: Words | None = None, spoilt: bool = False) -> Words:
    """Return a model, the real rows those of another one."""
    model = Words(entries)
    for mine, yours in zip(model.parameters(), () if like is None else like.parameters(), strict=False):
        mine.data[tuple(slice(size) for size in yours.data.shape)] = yours.data
    if spoilt:
        model.head.weight.data[4, 0] += 0.5
    return model


def recorded(model: Words, folder: Path, tokens: Any = TOKENS) -> Path:
    with padiff.record(model, folder) as recorder:
        model(rows.Tensor(tokens))
        recorder.step()
    return folder


@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_no_token_names_are_none(turned: bool, tmp_path: Path) -> None:
    np.random.seed(0)
    plain = words(5)
    folders = recorded(plain, tmp_path / "a"), recorded(words(8, like=plain), tmp_path / "b")
    report = padiff.compare(*(reversed(folders) if turned else folders))
    assert report.aligned, report
    assert not report.coverage.missing
    (note,) = [note for note in report.notes if note.kind == "padded_rows"]
    assert dict(note.data) == {"side": "reference" if turned else "candidate", "count": 8, "real": 5}


def test_a_real_row_that_differs_is_found(tmp_path: Path) -> None:
    np.random.seed(0)
    plain = words(5)
    spoilt = words(8, like=plain, spoilt=True)
    report = padiff.compare(recorded(plain, tmp_path / "a"), recorded(spoilt, tmp_path / "b"))
    assert [(source.what.kind, source.candidate.path) for source in report.sources] == [("parameter", "head")], report


def test_a_row_that_a_token_names_is_real(tmp_path: Path) -> None:
    np.random.seed(0)
    plain = words(5)
    wide = recorded(words(8, like=plain), tmp_path / "b", np.where(TOKENS == 4, 6, TOKENS))
    report = padiff.compare(recorded(plain, tmp_path / "a"), wide)
    assert not report.aligned
    assert not [note for note in report.notes if note.kind == "padded_rows"]


def test_transfer_leaves_padding_as_it_is(tmp_path: Path) -> None:
    np.random.seed(0)
    plain, wide = words(5), words(8)
    kept = wide.table.weight.data[5:].copy()
    done = padiff.transfer(recorded(plain, tmp_path / "a"), wide)
    assert done.padded == {"table.weight": 5, "head.weight": 5, "head.bias": 5}
    assert np.array_equal(wide.table.weight.data[:5], plain.table.weight.data)
    assert np.array_equal(wide.table.weight.data[5:], kept)
    again = words(5)
    assert padiff.transfer(recorded(wide, tmp_path / "b"), again).padded.keys() == done.padded.keys()
    assert np.array_equal(again.head.weight.data, plain.head.weight.data)


def test_what_a_stage_takes_comes_from_what_the_one_before_gives() -> None:
    none, scaled = frozenset[str](), frozenset({"mul"})
    first = Flow({"a": frozenset({("", none)}), "& add 1": frozenset({("a", none)})}, frozenset({("& add 1", none)}))
    second = Flow({"b": frozenset({("", scaled)}), "copy": frozenset({("b", none)})}, frozenset({("copy", none)}))
    found = chained([first, second], {"copy": "a"})
    assert found is not None
    assert found.takes["b"] == {("& add 1 0", scaled)}
    assert found.takes["a"] == {("", none), ("b", none)}
    assert found.gives == {("a", none)}
    assert chained([first, first], {}) is None
    assert chained([first, None], {}) is None


@pytest.mark.parametrize("turned", [False, True])
def test_a_diff_tells_where_rows_may_be_padding(turned: bool) -> None:
    """It feeds one side's values to the other, and compares each row."""
    np.random.seed(0)
    models = [words(5), words(8)]
    report = padiff.diff(*(reversed(models) if turned else models), (TOKENS,))
    assert not report.aligned
    (note,) = [note for note in report.notes if note.kind == "longer_vocabulary"]
    assert dict(note.data) == {"side": "reference" if turned else "candidate", "count": 8, "real": 5}
    assert "padiff.compare" in note.text
