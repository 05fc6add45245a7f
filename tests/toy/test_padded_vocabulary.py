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


class Trained(Words):
    """Give the loss of each token too, behind a layer as wide as the padded vocabulary."""

    def __init__(self, entries: int, *, masked: bool = True) -> None:
        self.wide, self.narrow = rows.Linear(3, 8), rows.Linear(8, 3)
        super().__init__(entries)
        self.masked = masked

    def forward(self, tokens: Any, labels: Any) -> Any:
        logits = self.head(self.narrow(self.wide(self.inner(self.table(tokens)))))
        if self.masked:
            logits = logits + np.where(np.arange(logits.shape[-1]) < 5, 0.0, -1e4).astype(np.float32)
        return logits, logits.exp().sum(axis=-1)


def both(turned: bool, *models: Words) -> list[Words]:
    return list(reversed(models)) if turned else list(models)


@pytest.mark.parametrize("operations", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_diff_leaves_padding_out(turned: bool, operations: bool) -> None:
    models = both(turned, Trained(5), Trained(8))
    kept = models[1].table.weight.data.copy()
    report = padiff.diff(*models, (TOKENS, TOKENS), operations=operations)
    assert report.aligned, report
    assert not report.coverage.missing
    (note,) = [note for note in report.notes if note.kind == "padded_rows"]
    assert dict(note.data) == {"side": "reference" if turned else "candidate", "count": 8, "real": 5}
    assert np.array_equal(models[1].table.weight.data[5:], kept[5:])  # rows of padding stay as they are
    assert np.array_equal(models[1].table.weight.data[:5], models[0].table.weight.data[:5])


@pytest.mark.parametrize("turned", [False, True])
def test_a_diff_finds_a_fault_beside_padding(turned: bool) -> None:
    class Scaled(Trained):
        def forward(self, tokens: Any, labels: Any) -> Any:
            logits, loss = super().forward(tokens, labels)
            return logits, loss * 1.01

    models = [Trained(8), Scaled(5)] if turned else [Trained(5), Scaled(8)]
    (source,) = padiff.diff(*models, (TOKENS, TOKENS)).sources
    assert (source.candidate.path, source.what.name) == ("", "[1]"), source
    assert str(source.cause) == "mul(_, 1.01) in the candidate only", source


def test_a_diff_names_padding_that_counts_in_what_is_made_of_the_logits() -> None:
    (source,) = padiff.diff(Trained(5), Trained(8, masked=False), (TOKENS, TOKENS)).sources
    assert (source.candidate.path, source.what.name, source.cause.name) == ("", "[1]", "padding_in_loss"), source
    assert dict(source.cause.parameters) == {"real": 5, "rows": 8}


def test_a_diff_compares_a_row_that_a_token_names() -> None:
    class Beyond(Trained):
        def forward(self, tokens: Any, labels: Any) -> Any:
            return super().forward(np.where(tokens.data == 4, 6, tokens.data), labels)

    report = padiff.diff(Trained(5), Beyond(8), (TOKENS, TOKENS))
    assert not report.aligned
    assert not [note for note in report.notes if note.kind == "padded_rows"]
