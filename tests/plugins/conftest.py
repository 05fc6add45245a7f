"""Install plugins beside the adapters that are there."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from padiff import plugins


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Give what installs a distribution with a plugin of a given text, for the test alone."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(distribution: str, text: str) -> None:
        module = f"{distribution.replace('-', '_')}_plugin"
        tmp_path.joinpath(f"{module}.py").write_text(textwrap.dedent(text))
        info = tmp_path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        info.joinpath("entry_points.txt").write_text(f"[padiff]\n{distribution} = {module}\n")
        plugins.reset()

    yield install
    monkeypatch.undo()
    plugins.reset()
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]
