"""Hold the committed table of conformance to what the suite gives today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from padiff.testing.conformance import read

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "conformance"
FILES = sorted(Path(__file__).parent.glob("test_*_adapter.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_table_is_what_the_suite_gives(file: Path) -> None:
    """What an adapter's tests collect is what its file in docs/conformance and the table say."""
    line = [sys.executable, "-m", "padiff.testing", "--into", str(FOLDER), "--check", str(file)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_adapter_has_a_column_and_nothing_fails() -> None:
    """Each adapter with tests here stands in the table, with no feature that fails."""
    seen = {one.adapter: one for one in read(FOLDER)}
    here = {file.stem.removeprefix("test_").removesuffix("_adapter") for file in FILES}
    assert here >= {"torch", "paddle", "mindspore"}
    assert set(seen) >= here | {"flax"}
    assert not [one.adapter for one in seen.values() if "fails" in one.features.values()]
