"""Write what was seen in the corners of the ranges of versions as the table of ``docs/versions.md``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs

from padiff.testing.conformance import rows

from .corners import CHECKS, CORNERS, ROOT

__all__ = ["PAGE", "Column", "columns", "failing", "rendered", "waiting", "write_page"]

PAGE = ROOT / "docs" / "versions.md"
_BEGIN, _END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"
_ORDER = ("torch", "paddle", "mindspore")
_CHECKS = {
    "first use": "README's first example and its command line: same verdict, same places, same causes",
    "planted faults": "faults in ported models, each named at its place, and nothing else",
    "real pairs": "two models of libraries: one pair aligned, one that differs, at the known places",
    "other environments": "remote workers and recorded runs, against the everyday version of the other framework",
}


@attrs.frozen
class Column:
    """One version of one framework, and what was seen of it."""

    framework: str
    version: str
    seen: dict[str, Any]
    corner: dict[str, Any]
    checks: tuple[str, ...] = CHECKS
    """What is run in its corner."""

    def cell(self, row: str) -> str:
        """Return what stands in a row."""
        if row in _CHECKS:
            return _count(self.corner["checks"].get(row)) if row in self.checks else "–"
        if row in ("python", "numpy"):
            return str(self.corner["installed"][row])
        if row == "dtypes":
            return str(len(self.seen["dtypes"]))
        if row == "tests":
            return _count(self.seen["tests"])
        return str(self.seen["features"].get(row, "unknown"))


def _count(counts: dict[str, int] | None) -> str:
    if counts is None:
        return "not yet"
    ran = counts["passed"] + counts["failed"]
    return f"{counts['passed']} of {ran}" if counts["failed"] else str(counts["passed"])


def columns() -> list[Column]:
    """Return a column for each version that was run, framework by framework, the oldest first."""
    found = []
    for corner in CORNERS:
        if corner.file.exists():
            seen = json.loads(corner.file.read_text(encoding="utf-8"))
            found += [Column(name, one["version"], one, seen, corner.checks) for name, one in seen["adapters"].items()]
    return sorted(found, key=lambda one: (_ORDER.index(one.framework), _numbers(one.version)))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def waiting(shown: list[Column]) -> list[str]:
    """Return the corners that were not run, and the checks of others that were not, in words."""
    found = [corner.name for corner in CORNERS if not corner.file.exists()]
    return found + [
        f"{one.framework} {one.version}: {row}" for one in shown for row in _CHECKS if one.cell(row) == "not yet"
    ]


def failing(shown: list[Column]) -> list[str]:
    """Return what fails, in words."""
    found = []
    for one in shown:
        counts = {**one.corner["checks"], "conformance": one.seen["tests"]}
        found += [f"{one.framework} {one.version}: {name}" for name, count in counts.items() if count["failed"]]
    return found


def rendered(shown: list[Column]) -> str:
    """Return the table as Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in _rows(shown))


def _rows(shown: list[Column]) -> Iterator[list[str]]:
    yield ["what", "shown by", *(f"{one.framework} {one.version}" for one in shown)]
    yield ["---"] * (len(shown) + 2)
    features = {name: f"{text[0].lower()}{text[1:]}" for name, text in rows().items()}
    told = {
        "python": "",
        "numpy": "",
        **_CHECKS,
        "tests": "of the adapter: the conformance suite, and its framework's own",
        **features,
        "dtypes": "how many cross bit for bit",
    }
    for row, text in told.items():
        yield [row, text, *(one.cell(row) for one in shown)]


def write_page() -> list[str]:
    """Put the table between its marks; return what fails in it."""
    shown = columns()
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    PAGE.write_text(f"{head}{_BEGIN}{rendered(shown)}{_END}{rest.partition(_END)[2]}", encoding="utf-8")
    return failing(shown)
