"""Let only the plugins exist that a test installs."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from padiff import plugins

from .site import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Let only the plugins in the test's folder exist."""
    before = set(sys.modules)

    def entry_points(*, group: str) -> importlib.metadata.EntryPoints:
        found = [
            point for dist in importlib.metadata.distributions(path=[str(tmp_path)]) for point in dist.entry_points
        ]
        return importlib.metadata.EntryPoints(found).select(group=group)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    plugins.reset()
    yield Site(tmp_path)
    plugins.reset()
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
