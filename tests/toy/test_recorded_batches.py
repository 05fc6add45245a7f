"""Compare recorded steps of one batch with steps of several slices of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows

from .test_compare import pair


def compared(folder: Path, cuts: tuple[int, int], *, other: bool = False) -> padiff.Report:
    x = np.random.default_rng(1).standard_normal((8, 3, 6)).astype(np.float32)
    for side, (model, count) in enumerate(zip(pair(), cuts, strict=True)):
        home: Any = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, folder / "ab"[side]) as recorder:
            for part in np.split(x[::-1] if other and side else x, count):
                y = model(home.Tensor(part.copy()))
                ((y * y).sum() * np.float32(1 / x.size)).backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("cuts", [(1, 4), (4, 1), (2, 4)])
def test_slices_of_one_batch_are_named(tmp_path: Path, cuts: tuple[int, int]) -> None:
    report = compared(tmp_path, cuts)
    (source,) = report.sources
    assert source.cause.name == "micro_batches"
    assert source.cause.parameters == {"reference": cuts[0], "candidate": cuts[1], "slices": True}
    assert "slices of one batch" in str(report)


def test_slices_of_another_batch_are_other_inputs(tmp_path: Path) -> None:
    report = compared(tmp_path, (1, 4), other=True)
    assert "inputs" in [one.cause.name for one in report.sources if one.cause is not None]
    assert "slices of one batch" not in str(report)


def test_a_batch_that_both_cut_alike_is_aligned(tmp_path: Path) -> None:
    report = compared(tmp_path, (4, 4))
    assert report.aligned, str(report)
