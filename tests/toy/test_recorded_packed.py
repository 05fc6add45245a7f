"""Compare scripts of which one pads sequences, and the other packs them in one, without padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

WORDS, SIZE, TIMES, LENGTHS = 9, 5, 6, (4, 6, 3)


class Net(rows.Module):
    def __init__(self, slope: float) -> None:
        self.words, self.places = rows.Embedding(WORDS, SIZE), rows.Embedding(TIMES, SIZE)
        self.first, self.last, self.slope = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 2), np.float32(slope)

    def forward(self, words: Any, places: Any) -> Any:
        x = functional.tanh(self.first(self.words(words) + self.places(places)) * self.slope)
        return self.last(x)


def train(
    folder: Path,
    how: str,
    *,
    slope: float = 1.0,
    off: int = 0,
    weight: float = 1.0,
    rate: float = 0.1,
    less: int = 0,
    counted: int = 0,
) -> None:
    """Train on ``padded`` sequences, or on these ``packed`` in one, as a batch of one or ``flat``.

    A script may give each sequence ``less`` words, or make its loss of as many that are ``counted`` though padded.
    """
    np.random.seed(0)
    model, rng = Net(slope), np.random.default_rng(1)
    optimizer = rows.SGD(model.parameters(), rate)
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for _ in range(2):
            texts = rng.integers(1, WORDS, (len(LENGTHS), TIMES))
            mask = np.arange(TIMES) < np.array(LENGTHS)[:, None] - less
            words, places = texts * mask, np.broadcast_to(np.arange(TIMES), mask.shape)
            mask = np.arange(TIMES) < np.array(LENGTHS)[:, None] - less + counted
            if how != "padded":
                lead = (slice(None),) if how == "flat" else (None,)
                words, places, mask = (one[mask][lead] for one in (words, (places + off) % TIMES, mask))
            y = model(rows.Tensor(words), rows.Tensor(places.copy()))
            loss = (y * y * rows.Tensor(mask[..., None].astype(np.float32))).sum() * np.float32(weight)
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("how", ["packed", "flat"])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),  # the inputs themselves differed, and nothing else was compared
        ({"slope": 1.1}, Phase.FORWARD),
        ({"off": 1}, Phase.FORWARD),
        ({"weight": 1.1}, Phase.LOSS),
        ({"rate": 0.2}, Phase.UPDATE),
        ({"less": 1}, Phase.FORWARD),
    ],
)
def test_sequences_may_be_packed(tmp_path: Path, how: str, turned: bool, fault: dict[str, Any], place: Any) -> None:
    ways = (how, "padded") if turned else ("padded", how)
    train(tmp_path / "a", ways[0], **(fault if turned else {}))
    train(tmp_path / "b", ways[1], **({} if turned else fault))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.phase, one.candidate.path) for one in report.sources] == ([] if place is None else [(place, "")]), (
        report
    )
    assert report.aligned is (place is None), report
    noted = {note.kind for note in report.notes} & {"rows_gathered"}
    assert noted or "less" in fault, report


def test_what_is_padded_has_no_effect_where_it_is_packed_away(tmp_path: Path) -> None:
    """A loss that counts one word more of each sequence sends gradients to padding."""
    train(tmp_path / "a", "packed")
    train(tmp_path / "b", "padded", counted=1)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert not report.aligned
    assert [one.is_caused_by("inputs") for one in report.sources] == [True], report
