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
