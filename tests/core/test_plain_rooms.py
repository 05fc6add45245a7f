"""Rooms that work on records alone: nothing of an adapter, and so nothing live, comes into them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import padiff

ROOMS = ("trace", "alignment", "parameters", "refinement", "judging", "report")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_no_adapter(room: str) -> None:
    files = sorted(Path(padiff.__file__).parent.joinpath(room).rglob("*.py"))
    assert files
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        named += [one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
        assert not [name for name in named if name.startswith("padiff.adapter")], file


def test_no_module_is_longer_than_a_reader_bears() -> None:
    files = sorted(Path(padiff.__file__).parent.rglob("*.py"))
    long = {str(file): lines for file in files if (lines := len(file.read_text("utf-8").splitlines())) > 350}
    assert files
    assert not long
