"""Compare scripts that give their models other things: labels, of which these make their words, or their loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

WORDS, SIZE, START = 7, 5, 1
TEXTS = np.random.default_rng(0).integers(2, WORDS, (2, 4, 6))


class Decoder(rows.Module):
    def __init__(self, slope: float) -> None:
        self.words, self.first, self.last = rows.Embedding(WORDS, SIZE), rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 3)
        self.slope = np.float32(slope)

    def forward(self, words: Any) -> Any:
        return self.last(functional.tanh(self.first(self.words(words) * self.slope)))


class Labelled(Decoder):
    """A model that makes the words it begins with of labels, and its loss if it is told to."""

    def __init__(self, slope: float, start: int, weight: float, *, loss: bool) -> None:
        super().__init__(slope)
        self.start, self.weight, self.loss = start, np.float32(weight), loss

    def forward(self, labels: Any) -> Any:
        words = np.concatenate([np.full_like(labels.data[:, :1], self.start), labels.data[:, :-1]], 1)
        y = super().forward(rows.Tensor(words))
        return ((y - np.float32(1)) * y).mean() * self.weight if self.loss else y


def train(
    folder: Path,
    *,
    labelled: bool,
    loss: bool,
    slope: float = 1.0,
    start: int = START,
    weight: float = 1.0,
    rate: float = 0.1,
) -> None:
    np.random.seed(0)
    model = Labelled(slope, start, weight, loss=loss) if labelled else Decoder(slope)
    optimizer = rows.SGD(model.parameters(), rate)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for text in TEXTS:
            y = model(rows.Tensor(text if labelled else np.concatenate([np.full((4, 1), START), text[:, :-1]], 1)))
            found = y if labelled and loss else ((y - np.float32(1)) * y).mean()
            optimizer.clear()
            found.backward()
            optimizer.step()
            recorder.step(float(found.data))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("loss", "fault", "place"),
    [
        (False, {}, None),  # the inputs themselves differed
        (True, {}, None),  # and the output had another shape
        (False, {"slope": 1.1}, Phase.FORWARD),
        (True, {"slope": 1.1}, Phase.FORWARD),
        (False, {"start": 2}, Phase.FORWARD),
        (True, {"start": 2}, Phase.FORWARD),
        (True, {"weight": 1.1}, Phase.BACKWARD),
        (True, {"rate": 0.2}, Phase.UPDATE),
    ],
)
def test_a_model_may_make_words_and_its_loss_of_labels(
    tmp_path: Path, turned: bool, loss: bool, fault: dict[str, Any], place: Phase | None
) -> None:
    train(tmp_path / "a", labelled=turned, loss=loss, **(fault if turned else {}))
    train(tmp_path / "b", labelled=not turned, loss=loss, **({} if turned else fault))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.phase, one.candidate.path) for one in report.sources] == ([] if place is None else [(place, "")]), (
        report
    )
    assert report.aligned is (place is None), report
    assert [note.kind for note in report.notes if note.kind == "other_arguments"] or "start" in fault, report


class Pooled(rows.Module):
    """A model that is given a mask, or finds what is padded itself and is given places."""

    def __init__(self, slope: float, *, placed: bool) -> None:
        self.words, self.places = rows.Embedding(WORDS, SIZE), rows.Embedding(8, SIZE)
        self.first, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 3)
        self.slope, self.placed = np.float32(slope), placed

    def forward(self, words: Any, given: Any) -> Any:
        places = given if self.placed else rows.Tensor(np.arange(words.shape[1]))
        mask = (words.data != 0).astype(np.int64) if self.placed else given.data
        x = functional.tanh(self.first(self.words(words) + self.places(places)) * self.slope)
        return self.last((x * rows.Tensor(mask[..., None].astype(np.float32))).mean(axis=1))


def pool(folder: Path, *, placed: bool, slope: float = 1.0, off: int = 0) -> None:
    np.random.seed(0)
    model = Pooled(slope, placed=placed)
    with padiff.record(model, folder) as recorder:
        for text in TEXTS:
            mask = (np.arange(text.shape[1]) < np.array([6, 4, 5, 3])[:, None]).astype(np.int64)
            places = np.broadcast_to(np.arange(text.shape[1]) + off, text.shape).copy()
            y = model(rows.Tensor(text * mask), rows.Tensor(places if placed else mask))
            loss = ((y - np.float32(1)) * y).mean()
            loss.backward()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({}, None),
        ({"slope": 1.1}, "None"),
        ({"off": 1}, "the inputs themselves differ"),
    ],
)
def test_places_and_a_mask_are_two_things(tmp_path: Path, turned: bool, fault: dict[str, Any], cause: Any) -> None:
    """They have one shape, and were held against each other."""
    pool(tmp_path / "a", placed=turned, **(fault if turned else {}))
    pool(tmp_path / "b", placed=not turned, **({} if turned else fault))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (cause is None), report
    assert [str(one.cause).startswith(cause) for one in report.sources] == [True] * (cause is not None), report
