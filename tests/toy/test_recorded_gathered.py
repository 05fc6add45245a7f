"""Compare scripts of which one's model calls its last layers for the rows alone that the loss is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

BATCH, TIMES, SIZE = 3, 4, 6


class Net(rows.Module):
    """Layers of all words, and of those that a mask hides."""

    def __init__(self, slope: float) -> None:
        self.body, self.first, self.last = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 3)
        self.slope = np.float32(slope)

    def forward(self, x: Any, picked: Any = None) -> Any:
        y = self.body(x)
        y = y + y.mean(1, keepdims=True)
        y = y if picked is None else y.reshape(BATCH * TIMES, SIZE)[picked.data]
        return self.last(functional.tanh(self.first(y) * self.slope))


def train(
    folder: Path,
    *,
    inside: bool,
    slope: float = 1.0,
    moved: int = 0,
    more: int = 0,
    weight: float = 1.0,
    rate: float = 0.1,
) -> None:
    np.random.seed(0)
    net, rng = Net(slope), np.random.default_rng(1)
    optimizer = rows.SGD(net.parameters(), rate)
    with padiff.record(net, folder, optimizer=optimizer) as recorder:
        for step in range(2):
            x = rows.Tensor(rng.standard_normal((BATCH, TIMES, SIZE)).astype(np.float32))
            picked = np.sort(rng.permutation(BATCH * TIMES - 1)[: 5 + step + more]) + moved
            wanted = rng.standard_normal((BATCH * TIMES, 3)).astype(np.float32)
            y = net(x, rows.Tensor(picked)) if inside else net(x).reshape(BATCH * TIMES, 3)[picked]
            off = y - wanted[: len(picked)]
            loss = (off * off).mean() * np.float32(weight)
            optimizer.clear()
            loss.backward()
            optimizer.step()
            recorder.step(float(loss.data))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({}, None),  # nothing behind the rows that are picked was compared, and what the models give was a source
        ({"slope": 1.1}, (Phase.FORWARD, "")),
        ({"moved": 1}, (Phase.FORWARD, "")),
        ({"more": 1}, (Phase.FORWARD, "")),
        ({"weight": 1.1}, (Phase.LOSS, "")),
        ({"rate": 0.2}, (Phase.UPDATE, "")),
    ],
)
def test_a_model_may_pick_the_rows_that_the_other_leaves_to_the_loss(
    tmp_path: Path, turned: bool, fault: dict[str, Any], place: Any
) -> None:
    train(tmp_path / "a", inside=turned)
    train(tmp_path / "b", inside=not turned, **fault)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [(one.phase, one.candidate.path) for one in report.sources] == [place] * (place is not None), str(report)
    assert report.aligned is (place is None), str(report)
    told = [note.data for note in report.notes if note.kind == "rows_gathered"]
    assert told == [{"side": ("reference", "candidate")[turned], "name": ""}] * ("more" not in fault)
