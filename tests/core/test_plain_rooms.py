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
