"""Compare recorded runs of which one scales its loss, and its gradients back, or does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import columns, rows

from .test_compare import pair
from .test_recorded_optimizers import Clip, by_norm

N = 1024.0


def divided(times: float, but: int = 0) -> Clip:
    """Return what divides the gradients, but for the last ones."""

    def unscale(optimizer: rows.SGD) -> None:
        for one in optimizer.parameters[: len(optimizer.parameters) - but]:
            if one.grad is not None:
                one.step.grad = (one.grad / times).astype(np.float32)

    return unscale


def trained(
    folder: Path, doings: Sequence[Clip], other: Sequence[Clip] = (), *, times: float = N, side: int = 1, **options: Any
) -> padiff.Report:
    """Record a script that scales its loss and does something to the gradients, and one that does not scale it."""
    scales = [(1.0, other), (times, doings)][:: 1 if side else -1]
    fault = options.pop("fault", "")
    for model, name, (scale, done) in zip(pair(fault), "ab", scales, strict=True):
        optimizer, rng = rows.SGD(model.parameters(), 0.1), np.random.default_rng(1)
        home = rows if isinstance(model, rows.Module) else columns
        with padiff.record(model, folder / name, optimizer=optimizer, **options) as recorder:
            for _ in range(2):
                y = model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
                loss = (y * y).mean()
                (loss * np.float32(scale)).backward()
                for one in done:
                    one(optimizer)
                optimizer.step()
                optimizer.clear()
                recorder.step(float(loss.data))
    return padiff.compare(folder / "a", folder / "b")


def noted(report: padiff.Report) -> list[Any]:
    return [(note.data["side"], note.data["times"]) for note in report.notes if note.kind == "loss_scaled"]


@pytest.mark.parametrize("values", ["tensors", "sketch", "summary"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_scale_that_is_taken_back_is_noted(tmp_path: Path, side: int, values: Any) -> None:
    report = trained(tmp_path, [divided(N)], side=side, values=values)
    assert report.aligned, str(report)
    assert noted(report) == [(("reference", "candidate")[side], N)]


@pytest.mark.parametrize(
    ("doings", "times"),
    [
        ([], N),
        ([divided(N, but=1)], N),
        ([by_norm(0.01), divided(N)], N),
        ([], 30.0),
    ],
    ids=["not taken back", "one is left out", "clipped before", "a sum for a mean"],
)
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_taken_back_is_one_source(tmp_path: Path, doings: list[Clip], times: float, side: int) -> None:
    report = trained(tmp_path, doings, times=times, side=side)
    (source,) = report.sources
    assert (source.phase, source.candidate.path, source.what.kind) == (Phase.BACKWARD, "", "output_gradient")
    assert source.cause.name == "loss_scaled"
    assert source.cause.parameters["times"] == pytest.approx(times if side else 1 / times, rel=1e-4)
    assert not noted(report)


def test_what_is_left_of_a_scale_is_a_difference(tmp_path: Path) -> None:
    """Twice as much as is taken back arrives."""
    report = trained(tmp_path, [divided(N / 2)])
    assert not report.aligned
    assert [one.candidate.path for one in report.sources] == [""]


def test_where_both_clip_a_scale_is_told(tmp_path: Path) -> None:
    """Whatever the loss is scaled by, clipping leaves the same step."""
    for name, doings in (("right", [divided(N), by_norm(0.01)]), ("wrong", [by_norm(0.01)])):
        report = trained(tmp_path / name, doings, [by_norm(0.01)])
        (source,) = report.sources
        assert source.cause.name == "loss_scaled", name


@pytest.mark.parametrize(("fault", "path"), [("detach", "layers.1"), ("glue", "layers.1")])
def test_a_fault_beside_a_scale_is_placed(tmp_path: Path, fault: str, path: str) -> None:
    plain = trained(tmp_path / "plain", [], times=1.0, fault=fault)
    report = trained(tmp_path / "scaled", [divided(N)], fault=fault)
    assert noted(report)
    assert [one.candidate.path for one in report.sources] == [one.candidate.path for one in plain.sources] == [path]
