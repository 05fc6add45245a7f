"""Keep the page on moving from PaDiff and its Chinese twin together, and true."""

from __future__ import annotations

import re
from pathlib import Path

import padiff
from padiff.compat import _forms

_DOCS = Path(padiff.__file__).parents[3] / "docs"
_PAGES = [(_DOCS / name).read_text(encoding="utf-8") for name in ("padiff.md", "padiff.zh.md")]


def test_both_pages_have_the_same_blocks() -> None:
    ours, theirs = (re.findall(r"^```\w+\n.*?^```$", page, re.MULTILINE | re.DOTALL) for page in _PAGES)
    assert ours == theirs
    assert len(ours) >= 10


def test_both_pages_have_the_same_sections_and_rows() -> None:
    ours, theirs = (re.findall(r"^(?:#+|\|)", page, re.MULTILINE) for page in _PAGES)
    assert ours == theirs
    rows = [re.findall(r"^\|.*$", page, re.MULTILINE) for page in _PAGES]
    for row, other in zip(*rows, strict=True):
        assert sorted(re.findall(r"`[^`]+`", row)) == sorted(re.findall(r"`[^`]+`", other)), row


def test_every_keyword_is_told() -> None:
    undocumented = {"model_names", "base_model", "raw_model", "inputs"}  # the first is of a branch, the others places
    for name in set(_forms._MEANING) - undocumented:
        for page in _PAGES:
            assert f"`{name}`" in page or f"{name}=" in page, name
