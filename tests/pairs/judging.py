"""Check a report against what a row expects."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import Any

from padiff.report import Finding, Report

from . import zoo
from .faults import EVERYWHERE, Row
from .tampering import module_at
from .zoo import native

__all__ = ["assert_aligned", "assert_located", "assert_named", "describe", "places_of"]


def describe(report: Report) -> str:
    """Return the sources, one a line, for a failed assertion."""
    lines = [
        f"  {f.phase} {f.verdict} {f.reference.path!r} | {f.candidate.path!r} {f.what!r} between={f.between} "
        f"cause={f.cause!r} at {f.candidate.location}"
        for f in report.sources
    ]
    return "\n".join(["sources:", *lines, f"notes: {[note.text for note in report.notes]}"])


def assert_aligned(report: Report, *, transferred: bool = True) -> None:
    """Assert that nothing parts, and that every parameter found its counterpart."""
    told = describe(report)
    assert report.aligned, told
    assert not report.sources, told
    if transferred:
        assert report.transfer is not None
        assert not report.transfer.unmatched_reference, report.transfer
        assert not report.transfer.unmatched_candidate, report.transfer


def places_of(row: Row, framework: str) -> tuple[frozenset[str], ...]:
    """Return the places that must be named in this framework, each with its alternatives."""
    places = row.places[framework]
    return tuple(frozenset(place.split("|")) for place in ((places,) if isinstance(places, str) else places))


def _phase_fits(found: Finding, row: Row) -> bool:
    # What is wrong forward is wrong backward and in the statistics too: these may stand beside.
    return found.phase in {
        *row.phases,
        *(("backward", "buffer", "forward") if row.phases != ("backward",) else ()),
    }


def _places(found: Finding) -> set[str | None]:
    """Return where a finding is: the modules of the parameters that one setting of an optimizer steps otherwise."""
    stepped = next((one.figures["paths"] for one in found.evidence if one.kind == "stepped_alike"), None)
    return {found.candidate.path} if stepped is None else {path.rpartition(".")[0] for path in stepped}


def assert_named(report: Report, row: Row, candidate: str, model: Any) -> None:
    """Assert that exactly the row's places are sources."""
    told = describe(report)
    assert not report.aligned, told
    places = places_of(row, candidate)
    if places == (frozenset({EVERYWHERE}),):
        owners = {name.rpartition(".")[0] for name in native.parameters(candidate, model)}
        assert {found.phase for found in report.sources} == set(row.phases), told
        assert all(_places(found) == owners for found in report.sources), told
        assert len({found.step for found in report.sources}) == len(report.sources), told
        return
    for found in report.sources:
        expected = all(any(path in place for place in places) for path in _places(found)) and _phase_fits(found, row)
        assert expected or (row.leftover and found.candidate.path is None), told
    for place in places:
        here = [f for f in report.sources if _places(f) & place and f.phase in row.phases]
        assert here, f"{sorted(place)} is not a source\n{told}"
        _assert_explained(here, row, candidate, told)


def _assert_explained(here: list[Finding], row: Row, candidate: str, told: str) -> None:
    if row.cause:
        causes = " ".join(f.cause or "" for f in here)
        assert all(any(word in causes for word in words.split("|")) for words in row.cause), told
    if row.before and row.before[candidate]:
        children = row.before[candidate].split("|")
        ends = [f.between[1] for f in here if f.between]
        assert any(end == child or end.startswith(f"{child}.") for end in ends for child in children), told


def assert_located(found: Finding, pair: str, frameworks: tuple[str, str], models: tuple[Any, Any]) -> None:
    """Assert that both locations of a finding lie in the class that holds or calls the module, or in what it calls."""
    for place, framework, model in zip((found.reference, found.candidate), frameworks, models, strict=True):
        if place.path is None:
            continue
        assert place.location, f"{framework} {place.path!r} has no location"
        frames = [frame.partition(" in ")[0].rpartition(":") for frame in (place.location, *place.stack)]
        assert Path(frames[0][0]).name == f"{pair}_{framework}.py", place.location
        lines = [int(line) for file, _, line in frames if Path(file).name == f"{pair}_{framework}.py"]
        spans = [_span(cls) for cls in _holders(model, place.path)]
        assert any(first <= line <= last for first, last in spans for line in lines), f"{place.location} not in {spans}"


def _holders(model: Any, path: str) -> list[type]:
    """Return the zoo's class at the path, and the nearest one above it."""
    found = []
    while True:
        cls = type(module_at(model, path))
        if cls.__module__.startswith(zoo.__name__):
            found.append(cls)
        if not path or len(found) == 2:
            return found
        path = path.rpartition(".")[0]


@cache
def _span(cls: type) -> tuple[int, int]:
    lines, first = inspect.getsourcelines(cls)
    return first, first + len(lines) - 1
