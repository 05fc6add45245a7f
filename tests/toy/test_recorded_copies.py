"""Compare recorded runs of blocks that return a copy of what they go on with, here one of both, there the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import functional, rows

SIZE = 8
ZERO, ONE = np.float32(0), np.float32(1)


class Twice(rows.Module):
    """A block that returns what it computes, and what that was computed from: a copy of it, or that itself."""

    def __init__(self, *, copied: bool, detached: bool) -> None:
        self.lin, self.norm, self.inner = rows.Linear(SIZE, SIZE), rows.LayerNorm(SIZE), rows.Linear(SIZE, SIZE)
        self.copied, self.detached = copied, detached

    def forward(self, x: Any) -> Any:
        x = self.norm(self.lin(x))
        made = functional.tanh(self.inner(x))
        return made, rows.Tensor(x.data) if self.detached else x + ZERO if self.copied else x


class Returned(rows.Module):
    """A block that returns one value twice."""

    def __init__(self) -> None:
        self.lin, self.norm = rows.Linear(SIZE, SIZE), rows.LayerNorm(SIZE)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.lin(x))
        return x, x + ZERO


class Net(rows.Module):
    """A layer behind the block takes output ``taken``, and what comes of it is scaled by ``scale``."""

    def __init__(self, block: Any, *, scale: float = 1.0, taken: int = 1) -> None:
        self.first, self.block = rows.Linear(SIZE, SIZE), block
        self.mid, self.head = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, 3)
        self.scale, self.taken = np.float32(scale), taken

    def forward(self, x: Any) -> Any:
        made = self.block(self.first(x))
        other = ONE if isinstance(self.block, Returned) else made[1 - self.taken]
        return self.head(functional.tanh(self.mid(made[self.taken]) * other) * self.scale)


def compared(folder: Path, models: tuple[Any, Any]) -> padiff.Report:
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    padiff.transfer(*models, x)
    for model, name in zip(models, "ab", strict=True):
        with padiff.record(model, folder / name) as recorder:
            out = model(rows.Tensor(x.copy()))
            (out * out).sum().backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


def block(*, copied: bool = False, detached: bool = False) -> Any:
    return Twice(copied=copied, detached=detached)


@pytest.mark.parametrize("scale", [1.0, 1.1, 1.001])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("case", ["copied", "returned"])
def test_a_copy_that_one_side_goes_on_with_is_no_fault(tmp_path: Path, case: str, turned: bool, scale: float) -> None:
    if case == "copied":
        models = Net(block(copied=turned)), Net(block(copied=not turned), scale=scale)
    else:
        models = Net(Returned(), taken=turned), Net(Returned(), taken=not turned, scale=scale)
    report = compared(tmp_path, models)
    assert report.aligned is (scale == 1.0), str(report)
    found = [(source.between, source.phase.value) for source in report.sources]
    assert found == [(("mid", "head"), "forward")] * (scale != 1.0), str(report)


def test_an_output_that_was_detached_is_a_fault_all_the_same(tmp_path: Path) -> None:
    report = compared(tmp_path, (Net(block()), Net(block(detached=True))))
    (source,) = report.sources
    assert (source.phase.value, source.candidate.path) == ("backward", "block"), str(report)
    assert "the candidate lets no gradient through" in str(report)
