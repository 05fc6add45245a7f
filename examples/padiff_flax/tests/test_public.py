"""Check that the adapter is a third party's: it touches nothing of padiff but what is documented."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from pathlib import Path

import pytest

import padiff_flax
from padiff import adapter

DOOR = "padiff.adapter"
FILES = sorted(Path(padiff_flax.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_but_the_door_is_used(file: Path) -> None:
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "padiff":
            assert node.module == DOOR
            assert {alias.name for alias in node.names} <= set(adapter.__all__)
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.split(".")[0] == "padiff"]


def test_it_is_a_distribution_of_its_own_that_padiff_finds_by_its_entry_point() -> None:
    (point,) = (one for one in importlib.metadata.entry_points(group="padiff") if one.name == "flax")
    assert point.dist is not None
    assert point.dist.name == "padiff-flax"
    assert point.load() is sys.modules["padiff_flax.plugin"]
