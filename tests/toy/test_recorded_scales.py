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
    scales = [(options.pop("theirs", 1.0), other), (times, doings)][:: 1 if side else -1]
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


@pytest.mark.parametrize("side", [0, 1])
def test_two_scales_that_are_taken_back_are_noted(tmp_path: Path, side: int) -> None:
    """Two training stacks begin with scales of their own."""
    report = trained(tmp_path / "right", [divided(N)], [divided(4 * N)], theirs=4 * N, side=side)
    assert report.aligned, str(report)
    assert [times for _, times in noted(report)] == [4.0]
    report = trained(tmp_path / "wrong", [], [divided(4 * N)], theirs=4 * N, side=side)
    assert [one.cause.name for one in report.sources] == ["loss_scaled"], str(report)


@pytest.mark.parametrize(
    ("doings", "times"),
    [
        ([], N),
        ([divided(N, but=1)], N),
        ([by_norm(0.01), divided(N)], N),
        ([], 30.0),
        ([divided(3.8)], 4.0),
    ],
    ids=["not taken back", "one is left out", "clipped before", "a sum for a mean", "clipped by nearly as much"],
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


@pytest.mark.parametrize(
    ("doings", "causes"),
    [
        ([divided(N), by_norm(0.01)], []),
        ([by_norm(0.01)], []),
        ([divided(N), by_norm(0.011)], ["gradients"]),
        ([by_norm(0.01), divided(N)], ["gradients"]),
    ],
    ids=["right", "not taken back", "another limit", "taken back behind"],
)
def test_where_both_clip_a_scale_is_noted(tmp_path: Path, doings: list[Clip], causes: list[str]) -> None:
    """Whatever the loss is scaled by, clipping to one norm leaves the same step: right scripts were told apart."""
    report = trained(tmp_path, doings, [by_norm(0.01)])
    assert [name for one in report.sources for name in one.cause.parameters] == causes, str(report)
    assert [note.kind for note in report.notes if "scaled" in note.kind] == ["loss_scaled_and_clipped"]


class Heads(rows.Module):
    def __init__(self) -> None:
        self.body, self.one, self.other = rows.Linear(6, 6), rows.Linear(6, 3), rows.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        inner = self.body(x).tanh()
        return self.one(inner), self.other(inner)


@pytest.mark.parametrize(("weights", "index"), [((1.0, 1.0), None), ((1.0, 0.7), 1), ((0.9, 1.0), 0)])
def test_a_loss_of_one_head_is_one_source_where_both_clip_beside_a_scale(
    tmp_path: Path, weights: tuple[float, float], index: int | None
) -> None:
    """What both send was no multiple any more: each of both was a source, a thousand times the other side's."""
    np.random.seed(0)
    models = Heads(), Heads()
    padiff.transfer(*models)
    for model, name, scale, own in zip(models, "ab", (1.0, N), ((1.0, 1.0), weights), strict=True):
        optimizer, rng = rows.SGD(model.parameters(), 0.1), np.random.default_rng(1)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            outs = model(rows.Tensor(rng.standard_normal((5, 6), dtype=np.float32)))
            terms = [(one * one).mean() * np.float32(weight) for one, weight in zip(outs, own, strict=True)]
            ((terms[0] + terms[1]) * np.float32(scale)).backward()
            by_norm(0.01)(optimizer)
            optimizer.step()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert [one.what.index for one in report.sources] == ([] if index is None else [index]), str(report)
    assert [note.kind for note in report.notes if "scaled" in note.kind] == ["loss_scaled_and_clipped"]


def test_a_loss_that_is_little_more_is_no_scale_beside_clipping(tmp_path: Path) -> None:
    """Any other loss was divided by how much larger its gradients are, and a note called it a scale."""
    for times in (1.05, 4.0):  # or of batches by whose number it is not divided
        report = trained(tmp_path / f"{times}", [by_norm(0.01)], [by_norm(0.01)], times=times)
        (source,) = report.sources
        assert source.cause.name == "loss_scaled", str(report)


def at_first(done: Clip) -> Clip:
    """Return what does something in the first step alone: later gradients are below the limit of a clipping."""
    count = iter(range(9))

    def clip(optimizer: rows.SGD) -> None:
        if next(count) == 0:
            done(optimizer)

    return clip


@pytest.mark.parametrize("side", [0, 1])
def test_a_step_without_clipping_shows_whether_a_scale_is_taken_back(tmp_path: Path, side: int) -> None:
    report = trained(tmp_path, [divided(N), at_first(by_norm(0.01))], [at_first(by_norm(0.01))], side=side)
    assert report.aligned, str(report)
    assert noted(report) == [(("reference", "candidate")[side], N)]


@pytest.mark.parametrize(
    "doings",
    [[at_first(by_norm(0.01))], [at_first(by_norm(0.01)), divided(N)], [divided(N / 2), at_first(by_norm(0.01))]],
    ids=["never", "clipped before", "half"],
)
def test_a_step_without_clipping_shows_a_scale_that_is_not_taken_back(tmp_path: Path, doings: list[Clip]) -> None:
    report = trained(tmp_path, doings, [at_first(by_norm(0.01))])
    (source,) = report.sources
    assert (source.step, source.cause.name) == (0, "loss_scaled")
    assert source.cause.parameters["times"] == pytest.approx(N)


def accumulated(
    folder: Path, model: Any, *, times: float, back: float, forgetful: bool = False, limit: float = 0
) -> None:
    """Record each micro-batch as a step; every third time the optimizer steps by what was gathered."""
    optimizer, rng = rows.SGD(model.parameters(), 0.1), np.random.default_rng(1)
    home = rows if isinstance(model, rows.Module) else columns
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for number in range(6):
            y = model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
            ((y * y).mean() * np.float32(times)).backward()
            if number % 3 == 2:
                divided(back)(optimizer)
                if limit and number == 2:
                    by_norm(limit)(optimizer)
                optimizer.step()
            if number % 3 == 2 or forgetful:
                optimizer.clear()
            recorder.step()


@pytest.mark.parametrize("limit", [0.0, 0.01])
@pytest.mark.parametrize("values", [(1 / 3, 1.0), (1.0, 3.0)])
def test_gradients_may_be_divided_where_micro_batches_are_steps(tmp_path: Path, values: Any, limit: float) -> None:
    """One divides the loss of each, the other what is gathered of all: no step in between shows that."""
    both = [(1 / 3, 1.0), (1.0, 3.0)]
    for model, name, (times, back) in zip(pair(), "ab", [values, *(one for one in both if one != values)], strict=True):
        accumulated(tmp_path / name, model, times=times, back=back, limit=limit)
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)
    assert [times for _, times in noted(report)] == [3.0]


@pytest.mark.parametrize("how", [{"back": 1.0}, {"back": 3.0, "forgetful": True}, {"back": 2.0}])
def test_gradients_of_micro_batches_that_are_not_divided_are_told_in_the_first(tmp_path: Path, how: Any) -> None:
    for model, name, own in zip(pair(), "ab", ({"times": 1 / 3, "back": 1.0}, {"times": 1.0, **how}), strict=True):
        accumulated(tmp_path / name, model, **own)
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.step, source.cause.name) == (0, "loss_scaled")


@pytest.mark.parametrize(("fault", "path"), [("detach", "layers.1"), ("glue", "layers.1")])
def test_a_fault_beside_a_scale_is_placed(tmp_path: Path, fault: str, path: str) -> None:
    plain = trained(tmp_path / "plain", [], times=1.0, fault=fault)
    report = trained(tmp_path / "scaled", [divided(N)], fault=fault)
    assert noted(report)
    assert [one.candidate.path for one in report.sources] == [one.candidate.path for one in plain.sources] == [path]


def skipping(folder: Path, model: Any, scale: float, *, limit: float, wider: float = 1.0, back: float = 1.0) -> None:
    """Train by a scaler by hand, which skips the step of a batch whose gradients overflow, and is halved."""
    optimizer, rng = rows.SGD(model.parameters(), 0.1), np.random.default_rng(1)
    home = rows if isinstance(model, rows.Module) else columns
    with padiff.record(model, folder, optimizer=optimizer) as recorder:
        for number in range(5):
            y = model(home.Tensor(rng.standard_normal((5, 3, 6), dtype=np.float32)))
            ((y * y).mean() * np.float32(np.inf if number == 1 else scale)).backward()
            if all(np.isfinite(one.grad).all() for one in optimizer.parameters):
                divided(scale * back)(optimizer)
                by_norm(limit * wider if number > 2 else 1e9)(optimizer)
                optimizer.step()
            else:
                scale /= 2
            optimizer.clear()
            recorder.step()


@pytest.mark.parametrize("limit", [1e9, 0.01])
@pytest.mark.parametrize(("fault", "step"), [({}, None), ({"back": 2.0}, 0), ({"wider": 2.0}, 3)])
def test_a_step_that_is_skipped_is_none_that_gathers(
    tmp_path: Path, limit: float, fault: dict[str, float], step: int | None
) -> None:
    """Behind it no scale was seen to be taken back; nor where both clip, which earlier steps show not to hide one."""
    with np.errstate(all="ignore"):
        for model, name, scale, own in zip(pair(), "ab", (1024.0, 256.0), ({}, fault), strict=True):
            skipping(tmp_path / name, model, scale, limit=limit, **own)
        report = padiff.compare(tmp_path / "a", tmp_path / "b")
    step = None if limit > 1 and step == 3 else step
    assert [one.step for one in report.sources] == [step] * (step is not None), str(report)
    assert report.aligned is (step is None), str(report)
