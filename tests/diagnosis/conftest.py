"""Announce the toy framework to the tests of this folder."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from padiff.plugins import reset

SITE = str(Path(__file__).parents[1] / "toy" / "site")


@pytest.fixture(scope="module", autouse=True)
def _announced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SITE)
        importlib.invalidate_caches()
        reset()
        yield
    reset()
