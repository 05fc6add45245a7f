"""Compare runs of which one byte of a large value is another than was written: it is named, wherever it lies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.errors import InputError
from padiff.testing.toy import rows
from padiff.trace import open_run

CHUNK = 1 << 20
"""Bytes that are compared, and summed, in one go."""


class Net(rows.Module):
    def __init__(self) -> None:
        self.first, self.head = rows.Linear(501, 1301), rows.Linear(1301, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.first(x))


def recorded(model: Net, folder: Path) -> Path:
    with padiff.record(model, folder):
        model(rows.Tensor(np.ones((2, 501), np.float32)))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    model = Net()
    found = {"sound": recorded(model, folder / "sound")}
    weight = model.first.weight.data
    weight *= 1 + np.float32(1e-6) * np.random.default_rng(1).random(weight.shape, dtype=np.float32)
    found["other"] = recorded(model, folder / "other")
    shutil.copytree(found["sound"], folder / "equal")
    return {**found, "equal": folder / "equal"}


def flip(run: Path, at: float) -> None:
    """Change one byte of the largest value, which lies so far behind its start."""
    places: Any = open_run(run).trace(0).store
    place = max(places.places, key=lambda one: one.size)
    assert place.size > 2 * CHUNK
    with (run / place.shard).open("r+b") as file:
        file.seek(place.start + int(at * (place.size - 1)))
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 4]))


@pytest.mark.parametrize("at", [0.0, 0.3, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("which", ["reference", "candidate", "both"])
@pytest.mark.parametrize("candidate", ["equal", "other"])
def test_one_damaged_byte_is_named(
    runs: dict[str, Path], tmp_path: Path, candidate: str, which: str, at: float
) -> None:
    sides = {"reference": tmp_path / "reference", "candidate": tmp_path / "candidate"}
    for name, source in zip(sides, ("sound", candidate), strict=True):
        shutil.copytree(runs[source], sides[name])
    assert padiff.compare(*sides.values()).aligned is (candidate == "equal")
    damaged = list(sides) if which == "both" else [which]
    for name in damaged:
        flip(sides[name], at)
    with pytest.raises(InputError, match=r"float32\[.*is damaged") as raised:
        padiff.compare(*sides.values())
    assert any(str(sides[name]) in str(raised.value) for name in damaged)
