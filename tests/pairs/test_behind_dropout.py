"""Train the encoder with dropout of its attention's own code: what chance hides is told in evaluation mode."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import padiff

from . import zoo
from .faults import ROWS
from .judging import assert_aligned, assert_located, assert_named
from .zoo import native

Frameworks = tuple[str, str]
# What draws runs 64 times on each side: not in MindSpore, where that takes a minute.
EACH_WAY = pytest.mark.parametrize("frameworks", zoo.WITHOUT_MINDSPORE, ids="-".join)
PROJECTIONS = {
    "torch": "blocks.{}.attn.{}_proj q k v out",
    "paddle": "layers.{}.self_attn.{} query key value out",
    "mindspore": "blocks.{}.attention.{} dense1 dense2 dense3 projection",
}
OPTIONS = {"train": True, "dropout": 0.3}


def _models(frameworks: Frameworks, faults: frozenset[str] = frozenset()) -> tuple[Any, Any]:
    reference = zoo.build("transformer", frameworks[0], **OPTIONS)
    return reference, zoo.build("transformer", frameworks[1], faults, seed=1, **OPTIONS)


def _projections(framework: str, model: Any) -> list[np.ndarray]:
    """Return the weights of query, key, value and output of both layers, as [out, in]."""
    held = native.parameters(framework, model)
    path, *names = PROJECTIONS[framework].split()
    paths = [f"{path.format(layer, name)}.weight" for layer in (0, 1) for name in names]
    weights = [native.read(framework, held[path]) for path in paths]
    return [weight.T for weight in weights] if framework == "paddle" else weights


@EACH_WAY
def test_each_projection_gets_its_own_weight(frameworks: Frameworks) -> None:
    models = _models(frameworks)
    report = padiff.diff(*models, zoo.inputs("transformer"))
    assert_aligned(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied, report.transfer
    assert report.counts["stochastic"] == 5, report
    ours, theirs = (_projections(framework, model) for framework, model in zip(frameworks, models, strict=True))
    for expected, found in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(expected, found)


# A factor close to one, values at the wrong place, and a layer's setting.
@pytest.mark.parametrize(
    ("fault", "frameworks"),
    [
        ("scale_slightly_off", ("torch", "paddle")),
        ("causal_off_by_one", ("paddle", "torch")),
        ("norm_eps", ("paddle", "torch")),
    ],
)
def test_a_fault_is_named_behind_chance(fault: str, frameworks: Frameworks) -> None:
    row = next(row for row in ROWS if row.id == f"transformer-{fault}")
    row = attrs.evolve(row, train=True, options={"dropout": 0.3})
    models = _models(frameworks, row.planted)
    report = padiff.diff(*models, zoo.inputs("transformer"))
    assert_named(report, row, frameworks[1], models[1])
    for found in report.sources:
        assert_located(found, row.pair, frameworks, models)
