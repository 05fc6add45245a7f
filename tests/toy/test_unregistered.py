"""Modules in a plain list, where their framework does not see them: the first trap of every port."""

from __future__ import annotations

from typing import Any

import numpy as np

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


class Seen(rows.Module):
    def __init__(self) -> None:
        self.layers = rows.ModuleList(*(rows.Linear(4, 4) for _ in range(2)))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.tanh(layer(x))
        return x


class Hidden(columns.Layer):
    def __init__(self) -> None:
        self.layers = [columns.Dense(4, 4) for _ in range(2)]

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.tanh(layer(x))
        return x


def test_modules_in_a_plain_list_are_told() -> None:
    report = padiff.diff(Seen(), Hidden(), X)
    assert not report.aligned
    (note,) = (note for note in report.notes if note.kind == "unregistered")
    assert note.data == {"side": "candidate", "held": {"layers": ("Dense", "Dense")}}
    assert "no optimizer gets them" in str(report).replace("\n             ", " ")
    assert not any(note.kind == "unregistered" for note in padiff.diff(Seen(), Seen(), X).notes)
