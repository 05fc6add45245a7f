"""What diff() says of models in processes of their own is what it says of them in one: every word and every figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import padiff
from padiff.report import Report

from .conftest import PORT, Sides

DIRECTIONS = (("torch", "paddle"), ("paddle", "torch"))
BOTH = pytest.mark.parametrize("frameworks", DIRECTIONS, ids="-".join)


def told(report: Report) -> dict[str, Any]:
    """Return all that a report says, but for how long it took and in which interpreter."""
    found: dict[str, Any] = json.loads(report.to_json())
    del found["seconds"], found["environment"]
    return found


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Yield where two reports' data differ; figures may in their last digits, as sums of other strides do."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from differences(a.get(key), b.get(key), f"{path}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, pair in enumerate(zip(a, b, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif isinstance(a, float) and isinstance(b, float):
        if a != pytest.approx(b, rel=1e-9, nan_ok=True):
            yield f"{path}: {a} and {b}"
    elif a != b:
        yield f"{path}: {a!r} and {b!r}"


def assert_same(here: Report, there: Report) -> None:
    """Assert that two reports say the same."""
    assert list(differences(told(here), told(there))) == []


@BOTH
@pytest.mark.parametrize(
    ("fault", "sources"),
    [
        ("", set()),
        ("epsilon scale", {("forward", "blocks.0"), ("forward", "blocks.1.norm")}),
        ("detached", {("backward", "")}),
        ("momentum", {("buffer", "bn")}),
    ],
    ids=["clean", "forward", "backward", "buffer"],
)
def test_both_sides_remote(
    sides: Sides, inputs: dict[str, Any], frameworks: tuple[str, str], fault: str, sources: set[tuple[str, str]]
) -> None:
    a, b = frameworks
    here = padiff.diff(sides.here(a), sides.here(b, fault), inputs)
    there = padiff.diff(sides.there(a), sides.there(b, fault), inputs)
    assert {(found.phase, found.candidate.path) for found in there.sources} == sources, str(there)
    assert_same(here, there)


@BOTH
@pytest.mark.parametrize("remote", ["reference", "candidate"])
def test_one_side_remote(sides: Sides, inputs: dict[str, Any], frameworks: tuple[str, str], remote: str) -> None:
    a, b = frameworks
    here = padiff.diff(sides.here(a), sides.here(b, "epsilon scale"), inputs)
    reference = sides.there(a) if remote == "reference" else sides.here(a)
    candidate = sides.there(b, "epsilon scale") if remote == "candidate" else sides.here(b, "epsilon scale")
    there = padiff.diff(reference, candidate, inputs)
    assert_same(here, there)
    places = [(found.candidate.path, found.candidate.location) for found in there.sources]
    file = f"{PORT[b]}.py"
    lines = Path(sides.port(b).__file__).read_text(encoding="utf-8").splitlines()
    own = 1 + next(i for i, line in enumerate(lines) if "self.down(hidden) * gain" in line)
    assert [path for path, _ in places] == ["blocks.0", "blocks.1.norm"]
    assert places[0][1].endswith(f"{file}:{own}")
    assert places[1][1].endswith(f"{file}:{own - 1}")


@pytest.mark.parametrize(
    ("frameworks", "remote"),
    [(("torch", "paddle"), {0, 1}), (("paddle", "torch"), {0}), (("paddle", "torch"), {1})],
    ids=["both", "reference", "candidate"],
)
def test_operations(sides: Sides, inputs: dict[str, Any], frameworks: tuple[str, str], remote: set[int]) -> None:
    faults = ("", "epsilon scale")
    models = [
        (sides.there if side in remote else sides.here)(framework, fault)
        for side, (framework, fault) in enumerate(zip(frameworks, faults, strict=True))
    ]
    here = padiff.diff(sides.here(frameworks[0]), sides.here(frameworks[1], faults[1]), inputs, operations=True)
    there = padiff.diff(*models, inputs, operations=True)
    assert_same(here, there)
    found = next(source for source in there.sources if source.candidate.path == "blocks.0.mul")
    assert str(found.cause).startswith("called as mul(_, 1.0) in the reference, as mul(_, ")


@BOTH
def test_a_loss_that_is_named(sides: Sides, inputs: dict[str, Any], frameworks: tuple[str, str]) -> None:
    a, b = frameworks
    functions = sides.port(a).loss, sides.port(b).heavier
    here = padiff.diff(sides.here(a), sides.here(b), inputs, loss=functions)
    there = padiff.diff(sides.there(a), sides.there(b), inputs, loss=(f"{PORT[a]}:loss", f"{PORT[b]}:heavier"))
    assert {found.phase for found in there.sources} == {"loss"}, str(there)
    assert_same(here, there)
    referred = padiff.diff(sides.there(a), sides.here(b), inputs, loss=functions)
    assert_same(here, referred)


def test_one_loss_by_name_for_both_sides(sides: Sides, inputs: dict[str, Any]) -> None:
    report = padiff.diff(sides.there("torch"), sides.here("paddle"), inputs, loss="both_ports:losses")
    assert report.aligned, str(report)
    assert report.loss is not None


@BOTH
@pytest.mark.parametrize(("name", "aligned"), [("optimizer", True), ("other_optimizer", False)])
def test_optimizers_that_are_named(
    sides: Sides, inputs: dict[str, Any], frameworks: tuple[str, str], name: str, aligned: bool
) -> None:
    a, b = frameworks
    models = sides.here(a), sides.here(b)
    made = sides.port(a).optimizer(models[0]), getattr(sides.port(b), name)(models[1])
    here = padiff.diff(*models, inputs, optimizers=made, steps=2)
    named = f"{PORT[a]}:optimizer", f"{PORT[b]}:{name}"
    there = padiff.diff(sides.there(a), sides.there(b), inputs, optimizers=named, steps=2)
    assert there.aligned is aligned, str(there)
    assert_same(here, there)
    if not aligned:
        assert {found.phase for found in there.sources} == {"update"}
        assert "weight_decay: 0.1 in the reference, 0.0 in the candidate" in str(there)


def test_evaluation_without_a_backward_pass_is_noted_alike(sides: Sides, inputs: dict[str, Any]) -> None:
    here = padiff.diff(sides.here("torch", train=False), sides.here("paddle", train=False), inputs)
    there = padiff.diff(sides.there("torch", train=False), sides.there("paddle", train=False), inputs)
    assert any("compared forward only" in note.text for note in there.notes)
    assert_same(here, there)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_dtypes(sides: Sides, inputs: dict[str, Any], dtype: str) -> None:
    inputs["x"] = inputs["x"].astype(dtype)
    here = padiff.diff(sides.here("torch", dtype=dtype), sides.here("torch", "detached", dtype=dtype), inputs)
    there = padiff.diff(sides.here("torch", dtype=dtype), sides.there("torch", "detached", dtype=dtype), inputs)
    assert {found.phase for found in there.sources} == {"backward"}, str(there)
    assert_same(here, there)


def test_a_map_and_what_is_ignored_by_path_and_by_class(sides: Sides, inputs: dict[str, Any]) -> None:
    def layer_map() -> padiff.LayerMap:
        found = padiff.LayerMap({"blocks.0": "blocks.0"})
        found.ignore("head")
        found.ignore_class("blocks.1", "LayerNorm")
        return found

    here = padiff.diff(sides.here("torch"), sides.here("paddle", "epsilon"), inputs, mapping=layer_map())
    there = padiff.diff(sides.there("torch"), sides.there("paddle", "epsilon"), inputs, mapping=layer_map())
    assert not there.sources, str(there)
    assert_same(here, there)


def test_a_class_of_this_process_names_the_same_class_there(sides: Sides, inputs: dict[str, Any]) -> None:
    import torch

    layer_map = padiff.LayerMap()
    layer_map.ignore_class("blocks.1", torch.nn.LayerNorm)
    report = padiff.diff(sides.there("torch"), sides.here("paddle", "epsilon"), inputs, mapping=layer_map)
    assert not report.sources, str(report)


def test_without_transfer_the_values_are_compared(sides: Sides, inputs: dict[str, Any]) -> None:
    here = padiff.diff(sides.here("torch"), sides.here("paddle"), inputs, transfer=False)
    there = padiff.diff(sides.there("torch"), sides.there("paddle"), inputs, transfer=False)
    assert {found.phase for found in there.sources} >= {"parameter"}
    assert_same(here, there)


def test_a_tolerance_rule(sides: Sides, inputs: dict[str, Any]) -> None:
    rule = {"atol": 1e-2, "rtol": 1e-2, "compare_mode": "strict"}
    here = padiff.diff(sides.here("torch"), sides.here("paddle", "scale"), inputs, tolerance=rule)
    there = padiff.diff(sides.there("torch"), sides.there("paddle", "scale"), inputs, tolerance=rule)
    assert_same(here, there)


def test_what_was_copied_stays_in_the_process(sides: Sides, inputs: dict[str, Any]) -> None:
    reference, candidate = sides.here("torch"), sides.there("paddle")
    padiff.diff(reference, candidate, inputs)
    weight = candidate.call("paddle_port:weights", "head.weight")
    assert (weight == reference.head.weight.detach().numpy().T).all()
