"""Diff pairs that compute the same: no alarm, and every parameter transferred."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff

from . import zoo
from .arguments import optimizers
from .judging import describe
from .zoo import styles

CASES: list[tuple[str, dict[str, Any]]] = [
    *((pair, {"seed": seed}) for pair in zoo.PAIRS for seed in (0, 1)),
    *((pair, {"depth": depth}) for pair in zoo.PAIRS[:4] for depth in (1, 4)),
    *((pair, {"dtype": "float64"}) for pair in zoo.PAIRS),
    *((pair, {"train": False}) for pair in zoo.PAIRS),
    # What draws runs 64 times on each side: the transformer does in test_behind_dropout.
    *((pair, {"dropout": 0.3}) for pair in zoo.PAIRS[:3] if pair != "transformer"),
    *((pair, {"dropout": 0.3, "train": False}) for pair in zoo.PAIRS[:3]),
    ("transformer", {"norm_first": False}),
    ("transformer", {"tied": True}),
    ("transformer", {"depth": 12, "train": False}),
    ("recurrent", {"cell": "gru"}),
    ("recurrent", {"cell": "gru", "depth": 2, "train": False}),
    ("llama", {"vocab": 24}),
    ("llama", {"kv_heads": 4, "hidden": 16}),
]


def _assert_clean(report: padiff.Report) -> None:
    told = describe(report)
    assert report.aligned, told
    assert not report.sources, told
    transfer = report.transfer
    assert transfer is not None
    assert not transfer.unmatched_reference, transfer
    assert not transfer.unmatched_candidate, transfer
    assert transfer.copied > 0


@pytest.mark.parametrize(
    ("pair", "options", "frameworks"),
    [
        pytest.param(
            pair,
            options,
            frameworks,
            id=f"{pair}-{options}-{'-'.join(frameworks)}",
            marks=[pytest.mark.every_direction] if options == {"seed": 0} else [],
        )
        for pair, options in CASES
        for frameworks in zoo.DIRECTIONS
        if zoo.possible(pair, frameworks, options)
    ],
)
def test_a_right_port_raises_no_alarm(pair: str, options: dict[str, Any], frameworks: tuple[str, str]) -> None:
    seed = options.get("seed", 0)
    reference = zoo.build(pair, frameworks[0], **options)
    port = zoo.build(pair, frameworks[1], **{**options, "seed": seed + 50})
    phase = "forward" if zoo.forward_only(pair, frameworks, options) else "both"
    inputs = zoo.inputs(pair, seed=seed, dtype=options.get("dtype", "float32"))
    report = padiff.diff(reference, port, inputs, phase=phase, seed=seed)
    _assert_clean(report)
    assert report.output is not None
    if not options.get("dropout") or options.get("train") is False:
        assert report.output.rel_l2 < _rounding(frameworks, options)


def _rounding(frameworks: tuple[str, str], options: dict[str, Any]) -> float:
    if options.get("dtype") != "float64":
        return 1e-5
    # MindSpore makes a float32 of every Python number, and computes layer norms in float32.
    return 1e-6 if "mindspore" in frameworks else 1e-9


@pytest.mark.parametrize("limit", zoo.LIMITS, ids=lambda limit: f"{limit.pair}-{limit.framework}-{limit.options}")
def test_a_limit_is_real(limit: zoo.Limit) -> None:
    """Ask for what was left out: it must fail, or the table is out of date."""
    dtype = limit.options.get("dtype", "float32")
    model = zoo.build(limit.pair, limit.framework, **limit.options)
    port = zoo.build(limit.pair, limit.framework, **{"seed": 1, **limit.options})
    inputs = zoo.inputs(limit.pair, dtype=dtype)
    if not limit.backward:
        with pytest.raises(padiff.errors.PadiffError):
            padiff.diff(model, port, inputs, phase="forward")
        return
    report = padiff.diff(model, port, inputs)
    assert any("backward" in note.text for note in report.notes), describe(report)
    assert not any(found.phase == "backward" for found in report.findings)


EACH_WAY = pytest.mark.parametrize("frameworks", zoo.DIRECTIONS, ids="-".join)


@EACH_WAY
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_same_training_raises_no_alarm(name: str, frameworks: tuple[str, str]) -> None:
    # The gradient of a key's bias is zero but for rounding, and Adam makes steps of full length from it.
    models = (zoo.build("transformer", frameworks[0]), zoo.build("transformer", frameworks[1], seed=1))
    settings = {} if name == "adamw" else {"lr": 0.05, "weight_decay": 0.01}
    arguments = optimizers(name, right=settings, wrong=settings)(frameworks, models)
    _assert_clean(padiff.diff(*models, zoo.inputs("transformer"), **arguments, steps=3))


@pytest.mark.parametrize(
    ("reference_style", "style", "frameworks"),
    [
        pytest.param(reference_style, style, frameworks, id=f"{reference_style}-{style}-{'-'.join(frameworks)}")
        for style in styles.STYLES
        for reference_style in ("plain", "flat")
        for frameworks in zoo.DIRECTIONS
    ],
)
def test_style_does_not_disturb(reference_style: str, style: str, frameworks: tuple[str, str]) -> None:
    reference = styles.build(frameworks[0], reference_style)
    port = styles.build(frameworks[1], style, seed=1)
    x = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
    _assert_clean(padiff.diff(reference, port, (x,)))
