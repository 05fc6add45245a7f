"""Follow docs/adapters.md from nothing to a passing adapter, and hold it to naming all that there is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from padiff import adapter
from padiff.plugins import _hookspecs as hookspecs

from .pages import ROOT, blocks, commands, printed, shows
from .site import imported, write

PAGE = ROOT / "docs" / "adapters.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Give the page a folder that Python imports from."""
    monkeypatch.chdir(tmp_path)
    with imported(tmp_path):
        yield tmp_path


def test_the_page_leads_to_a_passing_adapter(folder: Path) -> None:
    """Write each file, run each block and each command, in order; the suite passes, without gradients and with them."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(TEXT):
        if block.file is not None:
            write(block, folder)
        elif block.language == "python":
            trouble = shows(block.output or "...", printed(block, namespace, folder / "port.py"))
            assert trouble is None, f"{PAGE.name}:{block.line}: {trouble}"
        elif block.language == "console":
            for command, actual, shown in commands(block, folder):
                trouble = shows(shown, actual)
                assert trouble is None, f"{PAGE.name}:{block.line}: {command}: {trouble}"


def test_both_adapters_are_put_to_the_test() -> None:
    """The suite runs over the adapter of each plugin that the page shows."""
    steps = [b.file[0] if b.file else b.content.split()[1] for b in blocks(TEXT) if b.file or b.language == "console"]
    tested = [steps[: i + 1].count("padiff_acme/plugin.py") for i, step in enumerate(steps) if step == "pytest"]
    assert tested == [1, 2]


def told() -> set[str]:
    """Return every word that stands in code on the page."""
    return {word for code in re.findall(r"`([^`\n]+)`", TEXT) for word in re.findall(r"[\w-]+", code)}


HOOKS = [name for name in vars(hookspecs) if name.startswith("padiff_")]
CLASSES = (adapter.Adapter, adapter.Model, adapter.Module, adapter.Parameter, adapter.Tensor)
CLASSES = (*CLASSES, adapter.Listener, adapter.Hook, adapter.Tape)


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented(hook: str) -> None:
    """A hook without a row in the table of hooks does not exist for a plugin's author."""
    assert re.search(rf"^\| `{hook}` \| .{{20,}} \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_member_of_the_interface_is_documented(cls: type) -> None:
    """What an adapter may or must write stands on the page."""
    members = {name for name in (*vars(cls), *inspect.get_annotations(cls)) if not name.startswith("_")}
    assert members - told() - {"native"} == set()


def test_what_must_be_written_is_marked() -> None:
    """The rows with a star are the abstract methods, and what has no default."""
    starred = {
        word for row in re.findall(r"^\| (`[^|]*`) \* \|", TEXT, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    }
    wanted = {name for cls in CLASSES[:5] for name in getattr(cls, "__abstractmethods__", ())}
    assert starred == {*wanted, "name", "table"}


def test_every_field_of_the_info_is_documented() -> None:
    """Each field of AdapterInfo has a row."""
    for field in attrs.fields(adapter.AdapterInfo):
        assert re.search(rf"^\| `{field.name}` \| ", TEXT, re.MULTILINE), field.name


def test_every_capability_is_documented() -> None:
    """Each capability has a row with the words of CAPABILITIES."""
    for name, meaning in adapter.CAPABILITIES.items():
        assert f"| `{name}` | {meaning} |" in TEXT, name
