"""Number repeated layers on both sides: the numbers are believed where they say what the dataflow can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff
from padiff.testing.toy import columns, rows
from padiff.testing.toy import functional as F

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


class Deep(rows.Module):
    """Layers of one shape, one after the other."""

    def __init__(self) -> None:
        self.layers = rows.ModuleList(*(rows.Linear(4, 4) for _ in range(4)))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.tanh(layer(x))
        return x


class Port(columns.Layer):
    """The same under other names, with ``extra`` layers that are never called, its layers run in an order."""

    def __init__(self, order: tuple[int, ...], extra: int = 0) -> None:
        self.blocks, self.order = columns.Layers(*(columns.Dense(4, 4) for _ in range(4 + extra))), order

    def forward(self, x: Any) -> Any:
        for n in self.order:
            x = F.tanh(self.blocks[n](x))
        return x


@pytest.mark.parametrize(("order", "extra"), [((0, 1, 2, 3), 0), ((1, 2, 3, 4), 1), ((0, 1, 2, 3), 1)])
def test_a_right_port_is_aligned_whatever_its_numbers_begin_with(order: tuple[int, ...], extra: int) -> None:
    report = padiff.diff(Deep(), Port(order, extra), X)
    assert report.output is not None
    assert report.output.rel_l2 < 1e-6, str(report)
    assert not [source for source in report.sources if source.phase != "parameter"], str(report)


@pytest.mark.parametrize("order", [(3, 2, 1, 0), (0, 2, 1, 3), (0, 1, 3)])
def test_layers_run_in_another_order_than_their_numbers_are_a_fault(order: tuple[int, ...]) -> None:
    """Whoever loads weights by name meets it: exchanging the weights would hide it."""
    report = padiff.diff(Deep(), Port(order), X)
    assert not report.aligned
    assert {source.candidate.path for source in report.sources} == {""}, str(report)
