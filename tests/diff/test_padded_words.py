"""Diff models of which one pads its vocabulary, where a framework has no backward pass in evaluation mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import padiff

WORDS, PADDED, WIDTH = 10, 16, 4
TOKENS, LABELS = np.random.default_rng(0).integers(0, WORDS, (2, 2, 5))


class Ours(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Linear(WIDTH, WORDS)
        self.steps = torch.nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, tokens: Any, labels: Any) -> Any:
        logits = self.head(self.steps(self.words(tokens))[0])
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Theirs(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = paddle.nn.Embedding(PADDED, WIDTH), paddle.nn.Linear(WIDTH, PADDED)
        self.steps = paddle.nn.LSTM(WIDTH, WIDTH)

    def forward(self, tokens: Any, labels: Any) -> Any:
        logits = self.head(self.steps(self.words(tokens))[0])
        return logits, paddle.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def test_padding_that_counts_is_found_without_a_backward_pass() -> None:
    """Gradients that would name it are asked for no more: the diff raised where its own backward pass had none."""
    theirs = Theirs()
    theirs.eval()
    report = padiff.diff(Ours().eval(), theirs, (TOKENS, LABELS))
    assert [note.kind for note in report.notes if note.kind in ("padded_rows", "forward_only")] == [
        "padded_rows",
        "forward_only",
    ]
    assert [(source.candidate.path, source.what.name) for source in report.sources] == [("", "[1]")], report
