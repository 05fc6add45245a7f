"""Compare scripts that generate: one gives its model all words so far in each call, the other keeps a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

WORDS, SIZE, ROUNDS = 9, 6, 3
PROMPT = np.array([[1, 4, 2], [3, 3, 5]])


class Net(rows.Module):
    """A model whose words add up; what they came to it takes, and gives, as a cache."""

    def __init__(self, slope: float) -> None:
        self.words, self.places = rows.Embedding(WORDS, SIZE), rows.Embedding(16, SIZE)
        self.first, self.last, self.slope = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, WORDS), np.float32(slope)

    def forward(self, words: Any, cache: Any = None, start: int = 0) -> Any:
        places = rows.Tensor(np.arange(start, start + words.shape[1]))
        x = functional.tanh(self.first(self.words(words) + self.places(places)) * self.slope)
        sums, total = [], cache
        for time in range(words.shape[1]):
            total = x[:, time : time + 1] if total is None else total + x[:, time : time + 1]
            sums.append(total)
        return self.last(functional.concat(sums, 1)), total


def generate(
    folder: Path,
    *,
    cached: bool,
    slope: float = 1.0,
    off: int = 0,
    forgets: int = 0,
    other: int = 0,
    picks: bool = False,
    stale: bool = False,
) -> None:
    """Say the likeliest words behind a prompt; at places that are ``off``, of a cache that a script ``forgets`` once.

    A script may give its model ``other`` words. Where it ``picks`` rows that go on, the cache may be of others.
    """
    np.random.seed(0)
    model, words = Net(slope), PROMPT
    with padiff.record(model, folder) as recorder:
        scores, cache = model(rows.Tensor(words))
        for count in range(1, ROUNDS):
            new = (scores.data[:, -1:].argmax(-1) + other) % WORDS
            chosen = [1, 1, 0][: len(new) + 1] if picks else [*range(len(new))]
            words, new = np.concatenate([words, new], 1)[chosen], new[chosen]
            cache = cache[[*range(len(chosen))] if stale and count > 1 else chosen]
            if cached:
                place = words.shape[1] - 1 + off
                scores, cache = model(rows.Tensor(new), None if count == forgets else cache, place)
            else:
                scores, _ = model(rows.Tensor(words))
        recorder.step()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),
        ({"off": 1}, ("input", "")),  # it was aligned: the first call alone was compared
        ({"forgets": 1}, ("input", "")),
        ({"other": 1}, ("input", "")),
        ({"slope": 1.1}, ("input", "")),
        ({"picks": True}, None),
        ({"picks": True, "stale": True}, ("input", "")),
    ],
)
def test_a_model_may_be_given_all_words_again(tmp_path: Path, turned: bool, fault: dict[str, Any], place: Any) -> None:
    both = {"picks": fault.get("picks", False)}
    generate(tmp_path / "a", cached=turned, **(fault if turned else both))
    generate(tmp_path / "b", cached=not turned, **(both if turned else fault))
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (place is None), report
    assert [(one.phase, one.what.kind, one.candidate.path) for one in report.sources] == (
        [] if place is None else [(Phase.FORWARD, *place)]
    ), report
    told = [note.data for note in report.notes if note.kind == "given_again"]
    assert told == [{"side": ("reference", "candidate")[turned], "name": ""}] or fault
