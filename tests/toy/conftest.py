"""Announce the toy framework to the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .announced import announced


@pytest.fixture(scope="module", autouse=True)
def _announced() -> Iterator[None]:
    with announced():
        yield
