"""Announce the toy framework to the tests of this folder."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from padiff.plugins import reset

Write = Callable[[str], str]
SITE = str(Path(__file__).parents[1] / "toy" / "site")


@pytest.fixture(scope="module", autouse=True)
def _announced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SITE)
        importlib.invalidate_caches()
        reset()
        yield
    reset()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return what writes a mapping file and returns its name."""

    def written(text: str) -> str:
        path = tmp_path / "mapping.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written
