"""Give the tests all directions: each framework as the reference, each other as the candidate."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from .models import DIRECTIONS, Kit, kit


@pytest.fixture(params=DIRECTIONS, ids="-".join)
def kits(request: pytest.FixtureRequest) -> tuple[Kit, Kit]:
    """Return the reference's and the candidate's kit."""
    kits = kit(request.param[0]), kit(request.param[1])
    for one in kits:
        one.seed(0)
    return kits


@pytest.fixture
def young_heap() -> Iterator[None]:
    """Hide what is there already from the garbage collector: it is quick then, and counts what is new."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
