"""Planted faults are named at their exact places when each side runs in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import padiff

ROOT = Path(__file__).parents[2]
CASES = (("convnet", ("paddle", "torch")),)


@pytest.fixture(scope="module")
def pairs() -> Iterator[Any]:
    """Return the table of faults that are planted together, and the pairs they are planted in."""
    sys.path.insert(0, str(ROOT))
    yield import_module("tests.pairs.test_faults")
    sys.path.remove(str(ROOT))


@pytest.mark.parametrize(("pair", "frameworks"), CASES, ids=[f"{pair}-{'-'.join(both)}" for pair, both in CASES])
def test_several_faults_at_once_are_all_listed(pairs: Any, pair: str, frameworks: tuple[str, str]) -> None:
    faults = pairs.TOGETHER[pair]

    def side(index: int) -> padiff.Remote:
        planted = faults if index else ()
        options = {"args": (pair, frameworks[index], planted), "kwargs": {"seed": index}, "path": [ROOT]}
        return padiff.remote("tests.pairs.zoo:build", **options)

    with side(0) as reference, side(1) as candidate:
        report = padiff.diff(reference, candidate, pairs.zoo.inputs(pair))
    told = pairs.describe(report)
    rows = {row.fault: row for row in pairs.ROWS if row.pair == pair}
    expected = [(rows[fault], place) for fault in faults for place in pairs.places_of(rows[fault], frameworks[1])]
    listed = {(found.phase, found.candidate.path) for found in report.sources}
    for row, place in expected:
        assert any((phase, path) in listed for phase in row.phases for path in place), f"{row.id}\n{told}"
    assert {path for _, path in listed} <= frozenset().union(*(place for _, place in expected)), told
    for found in report.sources:
        for place, framework in zip((found.reference, found.candidate), frameworks, strict=True):
            if found.phase in {"forward", "backward"} and place.path is not None:
                assert Path((place.location or "").rpartition(":")[0]).name == f"{pair}_{framework}.py", told
