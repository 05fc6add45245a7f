"""Keep sketches in place of values: those of parts add up, and verdicts on them are those on the values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import padiff
from padiff.numerics import SKETCH_ERROR, sketch
from padiff.testing.toy import columns, rows
from padiff.trace import open_run, summarized

from .test_compare import Net, Port, loop, pair, places

SHAPES = [(5, 7), (300, 1000), (64, 3, 50, 14), (200_000,), (3, 300, 170)]


def values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def far(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(a, np.float64) - b) / np.linalg.norm(np.asarray(b, np.float64)))


@given(st.sampled_from(SHAPES), st.integers(0, 3), st.integers(1, 4), st.booleans())
def test_what_shards_are_projected_onto_adds_up(shape: tuple[int, ...], dim: int, count: int, apart: bool) -> None:
    array, dim = values(shape), dim % len(shape)
    places = np.array_split(np.arange(shape[dim]), count)
    if apart:  # layers that lie behind each other on every rank
        places = [np.arange(shape[dim])[first::count] for first in range(count)]
    total = np.zeros(1)
    for held in places:
        indices = [held if axis == dim else np.arange(extent) for axis, extent in enumerate(shape)]
        total = total + sketch(array.take(held, dim), indices, shape)
    assert far(total, sketch(array)) < 1e-6


def test_a_projection_is_linear_and_of_small_values_exact() -> None:
    one, other = values((300, 700)), values((300, 700), 1)
    assert far(sketch(one) + sketch(other), sketch(one + other)) < 1e-6
    assert np.linalg.norm(sketch(values((9, 7)))) == pytest.approx(np.linalg.norm(values((9, 7))))
    assert len(sketch(np.zeros((), np.float32))) == 1
    huge = np.full((70_000,), 3e38, np.float32)
    huge[5] = np.nan
    assert np.isfinite(sketch(huge.astype(np.float64))).all()


STRUCTURES: dict[str, Any] = {
    "noise": lambda rng: rng.standard_normal((128, 768)),
    "a bias in every row": lambda rng: np.ones((128, 1)) * rng.standard_normal((1, 768)),
    "one column": lambda rng: np.eye(1, 768, 5) * rng.standard_normal((128, 1)),
    "one row": lambda rng: np.eye(128, 1, -5) * rng.standard_normal((1, 768)),
    "one number": lambda rng: np.ones((128 + rng.integers(100), 768)),
    "one block again": lambda rng: np.tile(rng.standard_normal(151 * 424), 3),
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_how_far_two_values_are_apart_is_told_within_the_error(structure: str) -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(40):
        apart = STRUCTURES[structure](rng).astype(np.float32)
        shares.append(np.linalg.norm(sketch(apart)) / np.linalg.norm(apart))
    assert abs(np.mean(shares) - 1) < SKETCH_ERROR
    assert np.std(shares) < 1.3 * SKETCH_ERROR


def test_a_sketch_takes_a_kilobyte_and_its_run_is_refused_by_nobody(tmp_path: Path) -> None:
    loop(pair()[0], tmp_path / "run", values="sketch")
    run = open_run(tmp_path / "run")
    assert run.values == "sketch"
    assert all(one.sketch is not None and one.sketch.nbytes < 1000 for one in run.trace(0).summaries.values())
    assert padiff.compare(tmp_path / "run", tmp_path / "run").aligned


def record_both(tmp_path: Path, models: Any, *, optimizers: Any = (None, None), steps: int = 1) -> dict[str, Any]:
    """Record both models with their values and with sketches of these, from the same weights; return both reports."""
    start = [[np.array(held.data) for held in model.parameters()] for model in models]
    for kept in ("tensors", "sketch"):
        for name, model, weights, optimizer in zip("ab", models, start, optimizers, strict=True):
            for held, value in zip(model.parameters(), weights, strict=True):
                held.data[...] = value
            stepping = optimizer and optimizer(model)
            loop(model, tmp_path / f"{kept}-{name}", stepping, steps, values=kept)
    return {kept: padiff.compare(tmp_path / f"{kept}-a", tmp_path / f"{kept}-b") for kept in ("tensors", "sketch")}


@pytest.mark.parametrize("fault", ["", "epsilon", "glue", "residual", "detach"])
def test_verdicts_on_sketches_are_those_on_values(tmp_path: Path, fault: str) -> None:
    found = record_both(
        tmp_path,
        pair(fault),
        optimizers=(lambda m: rows.SGD(m.parameters(), 0.01), lambda m: columns.Descent(m.parameters(), 0.01)),
        steps=2,
    )
    assert places(found["sketch"]) == places(found["tensors"]), found["sketch"]
    assert found["sketch"].aligned is found["tensors"].aligned is (not fault)
    assert [s.cause for s in found["sketch"].sources] == [s.cause for s in found["tensors"].sources]
    for mine, full in zip(found["sketch"].sources, found["tensors"].sources, strict=True):
        assert mine.figures.rel_l2 == pytest.approx(full.figures.rel_l2, rel=4 * SKETCH_ERROR)
        assert mine.figures.estimated == SKETCH_ERROR


@pytest.mark.parametrize("wrong", [{"lr": 0.02}, {"lr": 0.01, "weight_decay": 0.1}, {"lr": 0.0}])
def test_a_wrong_step_shows_in_sketches(tmp_path: Path, wrong: dict[str, float]) -> None:
    found = record_both(
        tmp_path,
        pair(),
        optimizers=(lambda m: rows.SGD(m.parameters(), 0.01), lambda m: columns.Descent(m.parameters(), **wrong)),
    )
    assert places(found["sketch"]) == places(found["tensors"]) != []
    assert [s.cause for s in found["sketch"].sources] == [s.cause for s in found["tensors"].sources]


def test_what_to_record_in_full_next_is_said(tmp_path: Path) -> None:
    net, port = pair("glue")
    loop(net, tmp_path / "a", values="sketch")
    loop(port, tmp_path / "b", values="sketch")
    text = str(padiff.compare(tmp_path / "a", tmp_path / "b"))
    assert "as far as sketches show" in text
    assert "estimated, +-" in text
    assert "values='tensors' and modules=['blocks.1'] (reference), ['layers.1'] (candidate)" in " ".join(text.split())


def test_values_on_one_side_are_held_to_the_others_sketches(tmp_path: Path) -> None:
    for fault in ("", "glue"):
        net, port = pair(fault)
        loop(net, tmp_path / f"a{fault}", values="tensors")
        loop(port, tmp_path / f"b{fault}", values="sketch")
        report = padiff.compare(tmp_path / f"a{fault}", tmp_path / f"b{fault}")
        assert report.aligned is (not fault), report
        assert places(report) == ([("layers.1", "forward")] if fault else [])


def test_axes_in_another_order_are_held_to_what_does_not_depend_on_it() -> None:
    from padiff.judging._sizes import size_of

    one = values((5, 40, 9))
    turned = np.ascontiguousarray(one.transpose(1, 0, 2))
    mine, other = summarized(one, sketched=True), summarized(turned, sketched=True)
    assert size_of(mine, other).error < 1e-6
    assert size_of(mine, summarized(1.01 * turned, sketched=True)).error == pytest.approx(0.01, rel=0.1)
    assert size_of(mine, summarized(one.reshape(40, 5, 9), sketched=True)).error < 1e-6
    assert size_of(mine, summarized(values((5, 40, 9), 1), sketched=True)).error == pytest.approx(1.41, rel=0.3)


def test_no_port_is_wrong_for_its_layout(tmp_path: Path) -> None:
    """The weights of the port lie transposed."""
    shapes = [type(model).__name__ for model in (Net(), Port())]
    assert shapes == ["Net", "Port"]
    net, port = pair()
    held = open_run_of(tmp_path, net, "a"), open_run_of(tmp_path, port, "b")
    ours, theirs = (run.trace(0) for run in held)
    first = ours.summaries[ours.weights["first.weight"]], theirs.summaries[theirs.weights["embed.kernel"]]
    assert first[0].shape == first[1].shape[::-1]
    assert far(first[0].sketch, first[1].sketch) < 1e-6


def open_run_of(tmp_path: Path, model: Any, name: str) -> Any:
    loop(model, tmp_path / name, values="sketch")
    return open_run(tmp_path / name)
