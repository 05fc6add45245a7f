"""Judge the gradients that come out at the other end: those of a model's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows

X = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
MASK = (X > 0).astype(np.float32)


class Rows(rows.Module):
    def __init__(self, detached: bool = False) -> None:
        self.layer, self.detached = rows.Linear(4, 4), detached

    def forward(self, x: Any, mask: Any) -> Any:
        x = type(x)(x.data.copy()) if self.detached else x
        return self.layer(x) * mask


class Columns(columns.Layer):
    def __init__(self, detached: bool = False, compared: bool = False) -> None:
        self.layer, self.detached, self.compared = columns.Dense(4, 4), detached, compared

    def forward(self, x: Any, mask: Any) -> Any:
        x = type(x)(x.data.copy()) if self.detached else x
        return self.layer(x) * (type(mask)((mask.data > 0).astype(mask.data.dtype)) if self.compared else mask)


@pytest.mark.parametrize(("ours", "theirs"), [(True, False), (False, True)])
def test_an_input_that_one_model_detaches_is_named(ours: bool, theirs: bool) -> None:
    """All parameters get their gradients, and what made the input gets none: 0.4 called it aligned."""
    report = padiff.diff(Rows(ours), Columns(theirs), (X, MASK))
    (source,) = report.sources
    assert (source.phase, source.what.kind, source.what.name) == ("backward", "input_gradient", "x")
    assert f"in the {'candidate' if ours else 'reference'} only" in str(source.evidence[0])


def test_a_mask_may_be_computed_with_or_compared() -> None:
    assert padiff.diff(Rows(), Columns(compared=True), (X, MASK)).aligned
    assert not padiff.diff(Rows(), Columns(compared=True), (X, MASK * 2)).aligned


def test_an_input_that_both_detach_has_no_gradient() -> None:
    assert padiff.diff(Rows(True), Columns(True), (X, MASK)).aligned
