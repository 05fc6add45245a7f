"""Transfer what is one thing in two shapes, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import padiff

from .models import Kit, array, assert_clean, network, source

Kits = tuple[Kit, Kit]
X = (array(2, 8, 3, 3),)


def _scaled(kit: Kit, shape: tuple[int, ...], factor: float = 1.0) -> Any:
    """Return a model that scales channels by a parameter of its own, kept in this shape."""

    def forward(self: Any, x: Any) -> Any:
        return x * self.gamma.reshape([1, 8, 1, 1]) * factor

    values = np.arange(1, 9, dtype=np.float32) + len(shape)
    return network(kit, forward, name="Scaled", gamma=kit.parameter(values.reshape(shape)))


@pytest.mark.parametrize("shapes", [((8, 1, 1), (8,)), ((8,), (1, 8, 1, 1)), ((8, 1, 1), (1, 8))], ids=str)
def test_axes_of_length_one_are_no_obstacle(kits: Kits, shapes: Any) -> None:
    reference, port = (_scaled(kit, shape) for kit, shape in zip(kits, shapes, strict=True))
    assert_clean(padiff.diff(reference, port, X))
    assert np.array_equal(kits[0].numpy(reference.gamma).ravel(), kits[1].numpy(port.gamma).ravel())
    found = source(padiff.diff(reference, _scaled(kits[1], shapes[1], 1.1), X), "forward", "")
    assert found.figures.rel_l2 == pytest.approx(0.1, rel=1e-3)


def test_another_extent_is_not_bent_to_fit(kits: Kits) -> None:
    def build(kit: Kit, shape: tuple[int, ...]) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return x * self.gamma.sum()

        return network(kit, forward, name="Scaled", gamma=kit.parameter(np.ones(shape, np.float32)))

    report = padiff.diff(build(kits[0], (8,)), build(kits[1], (2, 4)), X)
    assert report.transfer.unmatched_reference == ("gamma",)
    assert report.transfer.unmatched_candidate == ("gamma",)
