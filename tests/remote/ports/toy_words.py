"""Be a toy model of words, one of them with a vocabulary that is padded."""

from __future__ import annotations

from typing import Any

import numpy as np

from padiff.testing.toy import rows


class Words(rows.Module):
    def __init__(self, entries: int) -> None:
        self.table = rows.Embedding(entries, 3)
        self.head = rows.Linear(3, entries)

    def forward(self, tokens: Any) -> Any:
        logits = self.head(self.table(tokens))
        masked = logits + np.where(np.arange(logits.shape[-1]) < 5, 0.0, -1e4).astype(np.float32)
        return logits, masked.exp().sum(axis=-1)


class Doubled(Words):
    def forward(self, tokens: Any) -> Any:
        logits, total = super().forward(tokens)
        return logits, total * 2.0


def plain() -> Words:
    return Words(5)


def padded() -> Words:
    return Words(8)


def doubled() -> Words:
    return Doubled(8)
