"""Plant one fault at a time: the default call must name it, at its exact place, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

import padiff

from . import zoo
from .faults import EVERYWHERE, ROWS, Row
from .judging import assert_located, assert_named, describe, places_of

LOCATED = {"forward", "backward"}
Frameworks = tuple[str, str]
EACH_WAY = pytest.mark.parametrize("frameworks", zoo.DIRECTIONS, ids="-".join)


_PLAIN = [row for row in ROWS if row.phases == ("forward",) and row.directions == zoo.DIRECTIONS]
BOTH_SIDES = {row.id for row in [row for row in _PLAIN if not row.leftover and not row.tamper][::4]}
"""Some of the faults that lie at one place on both sides, of which the reference's side must be named too."""


def _models(pair: str, frameworks: Frameworks, faults: frozenset[str], **options: Any) -> tuple[Any, Any]:
    reference = zoo.build(pair, frameworks[0], **options)
    return reference, zoo.build(pair, frameworks[1], faults, **{"seed": 1, **options})


@pytest.mark.parametrize(
    ("row", "frameworks"),
    [
        pytest.param(row, frameworks, id=f"{row.id}-{'-'.join(frameworks)}")
        for row in ROWS
        for frameworks in row.directions
    ],
)
def test_a_fault_is_named_at_its_place(row: Row, frameworks: Frameworks) -> None:
    candidate = frameworks[1]
    models = _models(row.pair, frameworks, row.planted, train=row.train, **row.options)
    inputs = zoo.inputs(row.pair)
    phase = "forward" if zoo.forward_only(row.pair, frameworks, {"train": row.train}) else "both"
    kwargs = row.extra(frameworks, models) if row.extra else {}
    if not row.transfer:
        assert padiff.diff(*models, inputs, phase=phase).aligned
        kwargs["transfer"] = False
    if row.tamper:
        row.tamper(models[1], candidate)
    report = padiff.diff(*models, inputs, phase=phase, **kwargs)
    assert_named(report, row, candidate, models[1])
    if row.id in BOTH_SIDES:
        allowed = frozenset().union(*places_of(row, frameworks[0]))
        assert {found.reference.path for found in report.sources} <= allowed, describe(report)
    if row.places[candidate] == EVERYWHERE or row.tamper or row.leftover:
        return
    for found in report.sources:
        if found.phase in LOCATED:
            assert_located(found, row.pair, frameworks, models)


TOGETHER = {
    "transformer": ("gelu_flavour", "norm_eps", "attention_scale", "position_offset", "final_norm_eps"),
    "convnet": (
        "padding_mode",
        "dilation",
        "bn_momentum",
        "avg_for_max",
        "missing_final_relu",
        "flatten_order",
    ),
    "llama": ("rms_eps", "rope_sign", "glu_swapped", "residual_scaled", "logits_capped", "embedding_scale"),
    "vae": ("group_count", "logvar_not_halved", "leaky_slope", "outputs_swapped"),
}


@EACH_WAY
@pytest.mark.parametrize("pair", TOGETHER)
def test_several_faults_at_once_are_all_listed(pair: str, frameworks: Frameworks) -> None:
    rows = {row.fault: row for row in ROWS if row.pair == pair}
    faults = [fault for fault in TOGETHER[pair] if frameworks in rows[fault].directions]
    report = padiff.diff(*_models(pair, frameworks, frozenset(faults)), zoo.inputs(pair))
    told = describe(report)
    listed = {(found.phase, found.candidate.path) for found in report.sources}
    expected = [(rows[fault], place) for fault in faults for place in places_of(rows[fault], frameworks[1])]
    for row, place in expected:
        assert any((phase, path) in listed for phase in row.phases for path in place), f"{row.id}\n{told}"
    allowed = frozenset().union(*(place for _, place in expected))
    assert {path for _, path in listed} <= allowed, told


# All four in float64, and those that a chance of the weights could hide with other seeds too.
@EACH_WAY
@pytest.mark.parametrize(
    ("fault", "seed", "dtype"),
    [
        ("norm_eps", 5, "float64"),
        ("gelu_flavour", 5, "float64"),
        ("scale_slightly_off", 5, "float64"),
        ("detached_residual", 5, "float64"),
        ("gelu_flavour", 6, "float32"),
        ("scale_slightly_off", 7, "float32"),
    ],
)
def test_a_fault_is_named_in_float64_and_with_other_seeds(
    fault: str, seed: int, dtype: str, frameworks: Frameworks
) -> None:
    row = next(row for row in ROWS if row.id == f"transformer-{fault}")
    models = _models("transformer", frameworks, row.planted, dtype=dtype, seed=seed)
    report = padiff.diff(*models, zoo.inputs("transformer", seed=seed), seed=seed)
    assert_named(report, row, frameworks[1], models[1])
