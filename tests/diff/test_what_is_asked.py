"""Judge what was asked for: one phase alone, inputs of each side, a rule on what adds up."""

from __future__ import annotations

import numpy as np
import pytest

import padiff
from padiff.report import Phase

from .models import Kit, array, assert_clean, blocks, mlp, source

Kits = tuple[Kit, Kit]
X = (array(4, 8),)


@pytest.mark.parametrize("tolerance", [None, {"atol": 1e-4}], ids=["measured", "classic"])
def test_inputs_that_differ_are_the_source(kits: Kits, tolerance: dict[str, float] | None) -> None:
    models = mlp(kits[0]), mlp(kits[1])
    report = padiff.diff(*models, X, candidate_inputs=(array(4, 8, seed=1),), tolerance=tolerance)
    found = source(report, Phase.FORWARD, "")
    assert "the inputs themselves differ" in found.cause
    nearly = X[0] * np.float32(1 + 2**-23)
    assert_clean(padiff.diff(*models, X, candidate_inputs=(nearly,), tolerance=tolerance))


def test_the_backward_pass_alone_speaks_for_itself(kits: Kits) -> None:
    models = blocks(kits[0]), blocks(kits[1], factors={2: 1.5})
    found = source(padiff.diff(*models, X, phase="backward"), Phase.BACKWARD, "blocks.2")
    assert found.figures.rel_l2 == pytest.approx(0.5, rel=0.5)
    assert_clean(padiff.diff(blocks(kits[0]), blocks(kits[1]), X, phase="backward"))


def test_the_report_tells_whether_the_free_outputs_keep_a_rule(kits: Kits) -> None:
    models = mlp(kits[0]), mlp(kits[1], after=lambda y: y * 1.01)
    assert padiff.diff(*models, X).output_within is None
    assert padiff.diff(*models, X, tolerance={"rtol": 0.02}).output_within is True
    assert padiff.diff(*models, X, tolerance={"rtol": 0.001}).output_within is False
