"""Compare scripts of two frameworks that train a language model, of which one leaves the last word out behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff.report import Phase

WORDS, WIDTH = 12, 8
TEXTS = np.random.default_rng(0).integers(0, WORDS, (2, 4, 7))


class Reference(torch.nn.Module):
    """A model that gives scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.rnn, self.head = torch.nn.GRU(WIDTH, WIDTH, batch_first=True), torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words: Any) -> Any:
        return self.head(self.rnn(self.embed(words))[0])


class Candidate(paddle.nn.Layer):  # type: ignore[misc]  # untyped
    """One that gives the logarithms of probabilities."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.words, self.gru = paddle.nn.Embedding(WORDS, WIDTH), paddle.nn.GRU(WIDTH, WIDTH)
        self.out, self.scale = paddle.nn.Linear(WIDTH, WORDS), scale

    def forward(self, words: Any) -> Any:
        states = self.gru(self.words(words))[0] * self.scale
        return paddle.nn.functional.log_softmax(self.out(states), -1)


def train_reference(folder: Path) -> None:
    torch.manual_seed(0)
    model = Reference()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with padiff.record(model, folder) as recorder:
        for text in torch.from_numpy(TEXTS):
            loss = torch.nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)


@pytest.mark.parametrize(
    ("fault", "phase"),
    [
        ({}, None),
        ({"scale": 1.1}, Phase.FORWARD),
        ({"shift": 0}, Phase.LOSS),
        ({"rate": 0.02}, Phase.UPDATE),
    ],
)
def test_scores_cut_behind_the_model_are_those_of_words_cut_in_front(
    tmp_path: Path, fault: dict[str, Any], phase: Phase | None
) -> None:
    train_reference(tmp_path / "a")
    model = Candidate(fault.get("scale", 1.0))
    padiff.transfer(tmp_path / "a", model)
    optimizer = paddle.optimizer.Adam(fault.get("rate", 0.01), parameters=model.parameters())
    with padiff.record(model, tmp_path / "b") as recorder:
        for text in map(paddle.to_tensor, TEXTS):
            shift = fault.get("shift", 1)
            loss = paddle.nn.functional.nll_loss(
                model(text)[:, :-1].reshape([-1, WORDS]), text[:, shift : shift + 6].flatten()
            )
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            recorder.step(loss)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (phase is None), str(report)
    assert [(one.phase, one.candidate.path) for one in report.sources] == [(phase, "")] * (phase is not None), str(
        report
    )
    assert {note.kind for note in report.notes} >= {"cut_short", "last_function"}
