"""Tell parts of a value that are far smaller than the rest from what is small by chance."""

from __future__ import annotations

import numpy as np
import pytest

from padiff.numerics import parts_apart


@pytest.mark.parametrize(
    ("sizes", "places"),
    [
        (np.geomspace(1, 1 / 40, 64), []),  # the smallest of many that vary
        (np.concatenate([np.ones(63), [1e-3]]), [63]),  # one that nothing is near
        (np.concatenate([np.geomspace(1, 1 / 30, 48), np.geomspace(1 / 40, 1 / 900, 16)]), range(48, 64)),  # many
    ],
    ids=["by-chance", "alone", "many"],
)
def test_a_part_is_many_places_or_far_from_all_others(sizes: np.ndarray, places: list[int]) -> None:
    ours = (np.random.default_rng(0).choice([-1.0, 1.0], (32, 64)) * sizes).astype(np.float32)
    found = parts_apart(ours, (ours * 1.01).astype(np.float32))
    assert [place for part in found for place in part.places] == list(places)
