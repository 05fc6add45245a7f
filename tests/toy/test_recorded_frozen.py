"""Compare recorded runs of which one lets no gradient through: frozen parameters, a tensor that is detached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import padiff
from padiff.report import Phase
from padiff.testing.toy import functional, rows

SIZE = 6


class Block(rows.Module):
    """Two layers and a residual connection; what lies between them may be detached."""

    def __init__(self) -> None:
        self.first, self.last, self.norm = rows.Linear(SIZE, SIZE), rows.Linear(SIZE, SIZE), rows.LayerNorm(SIZE)
        self.detached = False

    def forward(self, x: Any) -> Any:
        inner = functional.tanh(self.first(x))
        return self.norm(x + self.last(type(x)(inner.data) if self.detached else inner))


def compared(folder: Path, frozen: tuple[int, ...] = (), *, side: int = 1, detached: bool = False) -> padiff.Report:
    np.random.seed(0)
    models = tuple(rows.Sequential(*(Block() for _ in range(3))) for _ in range(2))
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    padiff.transfer(*models, x)
    blocks = list(models[side])
    for number in frozen:
        for parameter in blocks[number].parameters():
            parameter.requires_grad = False
    blocks[1].detached = detached
    for model, name in zip(models, "ab", strict=True):
        with padiff.record(model, folder / name) as recorder:
            out = model(rows.Tensor(x.copy()))
            (out * out * np.linspace(0, 1, SIZE, dtype=np.float32)).sum().backward()
            recorder.step()
    return padiff.compare(folder / "a", folder / "b")


@pytest.mark.parametrize("side", [0, 1])
def test_a_block_that_one_side_freezes_is_one_source(tmp_path: Path, side: int) -> None:
    report = compared(tmp_path, (1,), side=side)
    (source,) = report.sources
    assert (source.phase, source.candidate.path, source.what.name) == (Phase.BACKWARD, "1", "6 parameters")
    assert source.cause.name == "frozen"
    assert source.cause.parameters["side"] == ("reference", "candidate")[side]
    assert "each of 6 parameters is frozen" in str(report)
    assert not [one for one in report.findings if one.counts and one is not source]


def test_blocks_that_are_frozen_apart_are_told_around_both(tmp_path: Path) -> None:
    (source,) = compared(tmp_path, (0, 2)).sources
    assert (source.candidate.path, source.what.name) == ("", "12 parameters")
    (evidence,) = (one for one in source.evidence if one.kind == "frozen_together")
    assert {path[0] for path in evidence.figures["paths"]} == {"0", "2"}


@pytest.mark.parametrize("side", [0, 1])
def test_what_lets_gradients_through_to_frozen_layers_is_no_other_source(tmp_path: Path, side: int) -> None:
    """One side's inputs take gradients (as all that MindSpore's ``value_and_grad`` is given), the other side's none."""
    np.random.seed(0)
    models = tuple(rows.Sequential(*(Block() for _ in range(3))) for _ in range(2))
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    padiff.transfer(*models, x)
    for number, (model, name) in enumerate(zip(models, "ab", strict=True)):
        for frozen in list(model)[: 2 if number == side else 1]:
            for parameter in frozen.parameters():
                parameter.requires_grad = False
        with padiff.record(model, tmp_path / name) as recorder:
            out = model(rows.Tensor(x.copy(), requires_grad=number != side))
            (out * out * np.linspace(0, 1, SIZE, dtype=np.float32)).sum().backward()
            recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.candidate.path, source.cause.name) == ("1", "frozen")


def test_what_both_freeze_is_no_difference(tmp_path: Path) -> None:
    np.random.seed(0)
    model = rows.Sequential(Block(), Block())
    for parameter in next(iter(model)).parameters():
        parameter.requires_grad = False
    for name in "ab":
        with padiff.record(model, tmp_path / name) as recorder:
            (model(rows.Tensor(np.ones((2, SIZE), np.float32))) * np.float32(2)).sum().backward()
            recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned, str(report)


def test_a_tensor_that_is_detached_is_placed_in_front_of_who_takes_it(tmp_path: Path) -> None:
    (source,) = compared(tmp_path, detached=True).sources
    assert (source.candidate.path, source.between) == ("1", ("first", "last"))


class Scaled(rows.Module):
    """A layer and a scale; the scale may be used as a constant, as who differentiates by other parameters does."""

    def __init__(self) -> None:
        self.first, self.scale, self.shift = rows.Linear(SIZE, SIZE), rows.parameter(SIZE), rows.parameter(SIZE)
        self.constant = False

    def forward(self, x: Any) -> Any:
        scale, shift = ((type(x)(one.data) if self.constant else one) for one in (self.scale, self.shift))
        return self.first(x) * scale + shift


@pytest.mark.parametrize("side", [0, 1])
def test_what_gets_no_gradient_since_nothing_steps_it_is_one_source_with_that_cause(tmp_path: Path, side: int) -> None:
    """Who asks for the gradients of what the optimizer steps gets none of what was left out of it."""
    np.random.seed(0)
    models = Scaled(), Scaled()
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    padiff.transfer(*models, x)
    models[side].constant = True
    for model, name in zip(models, "ab", strict=True):
        stepped = model.first.parameters() if model.constant else model.parameters()
        optimizer = rows.SGD(stepped, 0.1)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            out = model(rows.Tensor(x.copy()))
            (out * out).mean().backward()
            optimizer.step()
            recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.phase, source.candidate.path, source.what.name) == (Phase.BACKWARD, "", "2 parameters")
    assert (source.cause.name, source.cause.parameters["side"]) == ("not_stepped", ("reference", "candidate")[side])


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_what_one_side_trains_a_step_later_is_frozen_there(tmp_path: Path, noise: float) -> None:
    """It was said of what is frozen from the first step on alone; and weights that differ by rounding excused it."""
    np.random.seed(0)
    models = tuple(rows.Sequential(*(Block() for _ in range(3))) for _ in range(2))
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((5, SIZE)).astype(np.float32) for _ in range(3)]
    padiff.transfer(*models, batches[0])
    for parameter in models[1].parameters():
        parameter.data[...] *= np.float32(1 + noise)
    for model, name, late in zip(models, "ab", (1, 2), strict=True):
        frozen = list(next(iter(model)).parameters())
        optimizer = rows.SGD(model.parameters(), 0.1)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            for number, x in enumerate(batches):
                for parameter in frozen:
                    parameter.requires_grad = number >= late
                out = model(rows.Tensor(x.copy()))
                (out * out * np.linspace(0, 1, SIZE, dtype=np.float32)).sum().backward()
                optimizer.step()
                optimizer.clear()
                recorder.step()
    (source,) = padiff.compare(tmp_path / "a", tmp_path / "b").sources
    assert (source.step, source.phase, source.candidate.path) == (1, Phase.BACKWARD, "0")
    assert (source.cause.name, source.cause.parameters["side"]) == ("frozen", "candidate")


@pytest.mark.parametrize(
    ("share", "decay", "aligned"), [(0.0, 0.0, True), (0.0, 0.1, False), (1e-3, 0.0, False), (0.0, 0.0, None)]
)
def test_layers_may_be_frozen_by_zeros(tmp_path: Path, share: float, decay: float, aligned: bool | None) -> None:
    """A right script that steps layers by zeros was a source, beside one that freezes them until the second step."""
    np.random.seed(0)
    models = tuple(rows.Sequential(Block(), Block()) for _ in range(2))
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    padiff.transfer(*models, x)
    for side, (model, name) in enumerate(zip(models, "ab", strict=True)):
        optimizer = rows.SGD(model.parameters(), 0.1, weight_decay=decay * side)
        with padiff.record(model, tmp_path / name, optimizer=optimizer) as recorder:
            for step in range(2):
                first = next(iter(model))
                frozen = step < (1 if side and aligned is None else 2)
                for parameter in first.parameters():
                    parameter.requires_grad = bool(side) or not frozen
                out = model(rows.Tensor(x.copy()))
                (out * out * np.linspace(0, 1, SIZE, dtype=np.float32)).sum().backward()
                for parameter in first.parameters() if side and frozen else ():
                    parameter.grad = parameter.grad * np.float32(share)
                optimizer.step()
                optimizer.clear()
                recorder.step()
    report = padiff.compare(tmp_path / "a", tmp_path / "b")
    assert report.aligned is (aligned is True), str(report)
    assert len(report.sources) == (aligned is not True), str(report)
    assert (aligned is not True) or "unused_gradients" in {note.kind for note in report.notes}
