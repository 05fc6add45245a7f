"""Compare recorded steps in which one script calls the model more often: for slices of one batch, or another one."""

from __future__ import annotations

from collections.abc import Sequence
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


Calls = Sequence[tuple[int, float | None]]
"""Of each call of a step: which batch it is given, and what its loss counts; None without a backward pass."""


def called(folder: Path, *scripts: Sequence[Calls]) -> padiff.Report:
    """Compare scripts, each with the calls that it makes in a step."""
    batches = np.random.default_rng(1).standard_normal((3, 8, 3, 6)).astype(np.float32)
    for side, (model, steps) in enumerate(zip(pair(), scripts, strict=True)):
        home: Any = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, folder / "ab"[side]) as recorder:
            for calls in steps:
                for batch, weight in calls:
                    y = model(home.Tensor(batches[batch].copy()))
                    if weight is not None:
                        ((y * y).mean() * np.float32(weight)).backward()
                recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("extra", [[(1, None), (0, 1.0)], [(0, 1.0), (1, None)], [(0, None), (0, 1.0)]])
@pytest.mark.parametrize("turned", [False, True])
def test_a_call_to_which_no_gradient_comes_is_noted_in_whatever_step(
    tmp_path: Path, extra: Calls, turned: bool
) -> None:
    """What was called first was compared with what the other side calls first; and of later steps nothing was said."""
    scripts = [[[(0, 1.0)], [(0, 1.0)]], [[(0, 1.0)], extra]]
    report = called(tmp_path, *(reversed(scripts) if turned else scripts))
    assert report.aligned, str(report)
    assert [(note.kind, note.data["side"]) for note in report.notes] == [
        ("extra_call", padiff.report.SIDES[not turned])
    ]


def test_calls_that_one_side_makes_in_another_order_are_the_same(tmp_path: Path) -> None:
    report = called(tmp_path, [[(0, 1.0), (1, None)]], [[(1, None), (0, 1.0)]])
    assert report.aligned, str(report)
    assert not report.notes


@pytest.mark.parametrize("weight", [1.0, 1e-5])
@pytest.mark.parametrize("first", [True, False])
def test_a_call_whose_gradients_one_side_alone_sums_is_the_cause(tmp_path: Path, weight: float, first: bool) -> None:
    """Of one that counts little the gradients of parameters show nothing: such runs were aligned."""
    extra = [(1, weight), (0, 1.0)] if first else [(0, 1.0), (1, weight)]
    (source,) = called(tmp_path, [[(0, 1.0)]], [extra]).sources
    assert (source.cause.name, source.cause.parameters) == ("micro_batches", {"reference": 1, "candidate": 2})
    assert (source.candidate.path, source.candidate.micro_batch) == ("", 0 if first else 1)


def test_a_call_that_is_compared_with_nothing_is_no_pass_forward(tmp_path: Path) -> None:
    report = called(tmp_path, [[(0, None)], [(0, None)]], [[(0, None)], [(1, None), (0, None)]])
    assert not report.aligned
    assert not report.sources
    (finding,) = report.unmatched
    assert (finding.step, finding.side, finding.candidate.micro_batch) == (1, "candidate", 0)
    assert "make the same calls in both scripts" in str(report)
