"""Run what the documents show, follow their links, and keep the two READMEs together."""

from __future__ import annotations

import html
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import padiff

from .pages import ROOT, anchors, blocks, commands, links, printed, shows, stable

TOP = [ROOT / name for name in ("README.md", "README.zh.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").glob("*.md"))]
# The blocks of README.zh.md are those of README.md; docs/adapters.md and docs/plugins.md, which have files, are run by
# test_adapters.py and test_plugins.py.
RUN = [page for page in PAGES if page.name not in ("README.zh.md", "adapters.md", "plugins.md")]
IDS = [page.name for page in PAGES]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Give a page an empty folder to work in, with examples/ importable; forget the examples afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    monkeypatch.delitem(sys.modules, "my_port", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXAMPLES)):
            del sys.modules[name]


@pytest.mark.parametrize("page", RUN, ids=[page.name for page in RUN])
def test_python_blocks_print_what_is_shown(page: Path, fresh: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language != "python":
            continue
        actual = printed(block, namespace, fresh / "first_use.py")
        if block.output is not None:
            trouble = shows(block.output, actual)
            assert trouble is None, f"{page.name}:{block.line}: {trouble}"


@pytest.mark.parametrize("page", RUN, ids=[page.name for page in RUN])
def test_commands_print_what_is_shown(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        for command, actual, shown in commands(block) if block.language == "console" else ():
            trouble = shows(shown, actual)
            assert trouble is None, f"{page.name}:{block.line}: {command}: {trouble}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_blocks_say_what_they_are(page: Path) -> None:
    found = {block.language for block in blocks(page.read_text(encoding="utf-8"))}
    assert found <= {"python", "console", "sh", "text", "toml", "yaml"}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_resolve(page: Path) -> None:
    for target in links(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name}: {target}"
        assert there.is_relative_to(ROOT), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), f"{page.name}: {target}"


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    found = links(index.read_text(encoding="utf-8"))
    listed = {(index.parent / target.partition("#")[0]).resolve() for target in found}
    assert set(PAGES) - {index} <= listed


def _readmes() -> list[str]:
    return [ROOT.joinpath(name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")]


def test_both_readmes_have_the_same_blocks() -> None:
    english, chinese = (blocks(text) for text in _readmes())
    for ours, theirs in zip(english, chinese, strict=True):
        assert (ours.language, ours.content, ours.output) == (theirs.language, theirs.content, theirs.output)


def test_both_readmes_have_the_same_sections() -> None:
    texts = _readmes()
    ours, theirs = (re.findall(r"^(?:#+|\||- )", text, re.MULTILINE) for text in texts)
    assert ours == theirs
    ours, theirs = ({target for target in links(text) if not target.startswith("README")} for text in texts)
    assert ours == theirs


def test_the_map_of_the_rooms_is_the_contract() -> None:
    settings = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))
    [contract] = [c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    text = ROOT.joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row) for row in rows] == [layer.split(" : ") for layer in contract["layers"]]


def test_the_picture_shows_what_the_readme_shows() -> None:
    drawn = html.unescape(re.sub(r"<[^>]*>", "", ROOT.joinpath("docs", "report.svg").read_text(encoding="utf-8")))
    drawn = "".join(drawn.split())
    [block] = [b for b in blocks(ROOT.joinpath("README.md").read_text(encoding="utf-8")) if b.language == "console"]
    shown = [line for line in block.content.splitlines() if len(line) > 3 and not line.startswith("$ echo")]
    assert [line for line in shown if "".join(line.split()) not in drawn] == []


# The demo ---------------------------------------------------------------------------------------------------


def _demo(**given: Any) -> Any:
    """Return the demo's main, with some of its constants replaced."""
    namespace = runpy.run_path(str(EXAMPLES / "demo.py"))
    namespace["main"].__globals__.update(given)
    return namespace["main"]


def test_the_demo_comes_out_as_stated(capsys: pytest.CaptureFixture[str]) -> None:
    assert _demo(SHAPE=(1, 3, 224, 224))() == 0
    said = capsys.readouterr().out
    assert "yes  ResNet-50 is aligned" in said
    assert "mode: 'upscale_in_train' in the reference, 'downscale_in_infer' in the candidate" in said


def test_the_demo_fails_where_padiff_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(padiff, "diff", lambda *_: padiff.Report(sources=(), findings=()))
    assert _demo()() == 1
    assert "NO   AlexNet differs" in capsys.readouterr().out


# How what is shown is compared ------------------------------------------------------------------------------

PRINTED = """\
not aligned: 1 source (4 calls compared)

source 1 of 1  forward: output differs
  reference  1  torch.nn.LayerNorm    a.py:12
  cause      eps: 1e-05 in the reference
  difference 2e-05 relative L2, at most 8.4e-05 in one element
  took       1.1 s
"""


@pytest.mark.parametrize(
    ("shown", "right"),
    [
        (PRINTED, True),
        (PRINTED.replace("8.4e-05", "0.5").replace("4 calls", "5 calls").replace("1.1 s", "9 s"), True),
        (PRINTED.replace("LayerNorm    a", "LayerNorm a"), True),
        (PRINTED.replace("a.py:12", "a.py:13"), False),
        (PRINTED.replace("eps: 1e-05", "eps: 1e-06"), False),
        (PRINTED.replace("output differs", "input differs"), False),
        ("not aligned: 1 source (4 calls compared)\n", False),
        ("not aligned: 1 source (4 calls compared)\n...\n", True),
        ("...\n  cause      eps: 1e-05 in the reference\n...\n", True),
        ("...\n  cause      eps: 1e-05 in the reference\n", False),
        ("...\n  cause      eps: 1e-05\n...\n", False),
        ("source 1 of 1  forward: output differs\n...\n", False),
    ],
)
def test_what_is_shown_is_compared_as_far_as_it_is_stable(shown: str, right: bool) -> None:
    assert (shows(shown, PRINTED) is None) is right


def test_figures_go_and_names_stay() -> None:
    assert stable("  difference at worst 1.6e-05, 0, -3 of 24") == "difference at worst #, #, # of #"
    assert stable("  also at    layers.0.norm1 / blocks.1 at my_port.py:12") == (
        "also at layers.0.norm1 / blocks.1 at my_port.py:12"
    )
    assert stable("  took       0.4 s") is None
