"""Tell a fault of a dozen machine epsilons, made between the children, from rounding."""

from __future__ import annotations

import pytest

import padiff

from .models import Kit, array, assert_clean, blocks, source

Kits = tuple[Kit, Kit]
X = (array(4, 8),)


@pytest.mark.parametrize("epsilons", [24, -24])
def test_a_factor_close_to_one_is_named(kits: Kits, epsilons: int) -> None:
    # Below 16 epsilons a difference is excused where the code rounds to a narrower type even in float64; whether it
    # does is seen by disturbing all that it is fed, what the children hand on among it.
    assert_clean(padiff.diff(blocks(kits[0]), blocks(kits[1]), X))
    port = blocks(kits[1], factors={1: 1 + epsilons * 1.2e-7})
    found = source(padiff.diff(blocks(kits[0]), port, X), "forward", "blocks.1")
    assert found.between == ("act", "end")
