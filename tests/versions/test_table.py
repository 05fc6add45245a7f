"""Hold the table of versions, and the ranges that the distributions declare, to what was run."""

from __future__ import annotations

import re
import tomllib

import pytest

from .corners import CORNERS, ROOT
from .table import PAGE, columns, failing, rendered, waiting

COLUMNS = columns()
DISTRIBUTIONS = {"torch": "torch", "paddle": "paddlepaddle", "mindspore": "mindspore"}


def declared(framework: str) -> dict[str, str]:
    """Return the lower bounds that a distribution of padiff's declares."""
    text = (ROOT / f"padiff_{framework}" / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    given = [*project["dependencies"], *project.get("optional-dependencies", {}).get(framework, [])]
    found = dict(match.groups() for word in given if (match := re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+).*", word)))
    return {**found, "python": project["requires-python"].removeprefix(">=")}


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def is_of(version: str, bound: str) -> bool:
    """Return whether a version is the first one that a bound lets in, but for its last numbers."""
    return numbers(version)[: len(numbers(bound))] == numbers(bound)


def test_the_page_shows_what_the_corners_showed() -> None:
    assert rendered(COLUMNS) in PAGE.read_text(encoding="utf-8"), "Hint: python -m tests.versions --table"


def test_nothing_fails_in_a_corner() -> None:
    assert not failing(COLUMNS)


def test_every_corner_was_run() -> None:
    assert not waiting(COLUMNS)


@pytest.mark.parametrize("framework", DISTRIBUTIONS)
def test_the_oldest_that_was_run_is_the_oldest_that_is_declared(framework: str) -> None:
    known = [one for one in COLUMNS if one.framework == framework]
    bounds = declared(framework)
    assert is_of(known[0].version, bounds[DISTRIBUTIONS[framework]]), (known[0].version, bounds)
    assert len(known) > 1, "the newest was run too"


def test_ci_runs_the_oldest_that_are_declared() -> None:
    """But for torch's, which PyPI has with its CUDA libraries alone."""
    text = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)", text, re.MULTILINE))
    for framework in ("core", "paddle", "mindspore"):
        for name, bound in declared(framework).items():
            assert name in ("python", "pytest") or is_of(pinned[name], bound), (framework, name)


@pytest.mark.parametrize("name", ["numpy", "python"])
def test_the_oldest_numpy_and_python_were_run(name: str) -> None:
    oldest = min((one.cell(name) for one in COLUMNS), key=numbers)
    for framework in ("core", *DISTRIBUTIONS):
        assert is_of(oldest, declared(framework)[name]), (framework, oldest)
    assert name == "python" or any(numbers(one.cell(name))[0] == 2 for one in COLUMNS)


def test_a_corner_was_run_with_the_versions_that_it_names() -> None:
    for one in COLUMNS:
        corner = next(known for known in CORNERS if known.name == one.corner["corner"])
        installed = {name: one.corner["installed"][name].partition("+")[0] for name in corner.pins}
        assert installed == dict(corner.pins)
