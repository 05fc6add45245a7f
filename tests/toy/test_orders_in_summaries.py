"""Compare summaries of values whose axes lie in another order, where the extents do not tell which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, functional, rows

SIZE = 8
"""The extent of all axes: of what is larger than a sample, figures alone tell that do not depend on the order."""


class Net(rows.Module):
    """Images with the channels second."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = rows.Conv2d(3, SIZE, 3, 1, 1), rows.BatchNorm(SIZE)
        self.body, self.last = rows.Conv2d(SIZE, SIZE, 3, 1, 1), rows.Linear(SIZE, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.body(functional.relu(self.norm(self.stem(x)))).mean(3, False).mean(2, False))


class Port(columns.Layer):
    """Images with the channels last; ``turned``: height and width exchanged behind the norm, ``eps`` its own."""

    def __init__(self, *, turned: bool = False, eps: float = 1e-5) -> None:
        super().__init__()
        self.stem, self.norm = columns.Conv(3, SIZE, 3, 1, 1), columns.BatchNormalization(SIZE, eps, 0.9)
        self.body, self.last = columns.Conv(SIZE, SIZE, 3, 1, 1), columns.Dense(SIZE, 2)
        self.turned = turned

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.norm(self.stem(x.transpose(0, 2, 3, 1))))
        x = self.body(x.transpose(0, 2, 1, 3) if self.turned else x)
        return self.last(x.mean(1, False).mean(1, False))


def compared(folder: Path, port: Port, values: str) -> padiff.Report:
    net, rng = Net(), np.random.default_rng(0)
    image = rng.standard_normal((SIZE, 3, SIZE, SIZE)).astype(np.float32)
    padiff.transfer(net, port, image)
    sides: Any = ((net, rows, "a"), (port, columns, "b"))
    for model, side, name in sides:
        with padiff.record(model, folder / name, values=values) as recorder:
            out = model(side.Tensor(image.copy()))
            (out * out).sum().backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("values", ["tensors", "summary", "sketch"])
def test_a_right_port_is_aligned_and_read_in_the_references_order(tmp_path: Path, values: str) -> None:
    report = compared(tmp_path, Port(), values)
    assert report.aligned, str(report)
    notes = " ".join(note.text for note in report.notes)
    assert "channels last on one side" in notes
    assert notes.count("[i, k, l, j]") + notes.count("[i, l, j, k]") == 1, notes  # one order, for all of them


@pytest.mark.parametrize("values", ["tensors", "summary", "sketch"])
@pytest.mark.parametrize(("fault", "place"), [({"turned": True}, "body"), ({"eps": 0.1}, "norm")])
def test_a_fault_there_is_named(tmp_path: Path, values: str, fault: dict[str, Any], place: str) -> None:
    report = compared(tmp_path, Port(**fault), values)
    assert report.sources[0].candidate.path == place or place in report.sources[0].between, str(report)
