"""Write mapping files for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return what writes a mapping file and returns its name."""

    def written(text: str) -> str:
        path = tmp_path / "mapping.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written
