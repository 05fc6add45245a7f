"""Build the plugin of docs/plugins.md, run the page with it, and hold the page to naming all that there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from padiff import plugins

from .pages import ROOT, Block, blocks, commands, printed, shows
from .site import imported, write

PAGE = ROOT / "docs" / "plugins.md"
EXAMPLE = ROOT / "examples" / "padiff_extras"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = {block.file[0]: block for block in blocks(TEXT) if block.file is not None}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Give the page a folder in which its plugin is installed."""
    monkeypatch.chdir(tmp_path)
    with imported(tmp_path):
        for block in FILES.values():
            write(block, tmp_path)
        yield tmp_path


def test_the_page_does_what_it_shows(folder: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(TEXT):
        if block.language == "python" and block.file is None:
            trouble = shows(block.output or "...", printed(block, namespace, folder / "port.py"))
            assert trouble is None, f"{PAGE.name}:{block.line}: {trouble}"
        elif block.language == "console":
            for command, actual, shown in commands(block, folder):
                trouble = shows(shown, actual)
                assert trouble is None, f"{PAGE.name}:{block.line}: {command}: {trouble}"


@pytest.mark.parametrize("name", FILES)
def test_the_example_is_what_the_page_shows(name: str) -> None:
    block: Block = FILES[name]
    assert EXAMPLE.joinpath(name).read_text(encoding="utf-8") == block.content.partition("\n")[2]


@pytest.mark.parametrize("hook", plugins.HOOKS)
def test_every_hook_is_documented(hook: str) -> None:
    assert re.search(
        rf"^\| `{hook}` \| `padiff\.{plugins.HOOKS[hook].item.__name__}` \| .{{20,}} \|$", TEXT, re.MULTILINE
    )


@pytest.mark.parametrize("cls", [plugins.Metric, plugins.SpecialTransfer])
def test_every_field_is_documented(cls: type) -> None:
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE))
    assert {field.name for field in attrs.fields(cls)} <= set(re.findall(r"`(\w+)`", rows))
