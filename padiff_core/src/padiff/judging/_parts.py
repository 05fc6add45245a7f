"""Say where parameters hang, and which parts of them one side alone has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from padiff.parameters import Correspondence, Held, HeldUnit, PartAlone, parts_alone
from padiff.paths import joined, parent
from padiff.report import SIDES, Cause, Evidence, Finding, Note, Phase, Place, Verdict, What

SHOWN = 8
"""Rows of which a cause says where they lie."""
Ignored = tuple[frozenset[str], frozenset[str]]
"""Paths of modules of the reference, and of the candidate."""


def parts_of(correspondence: Correspondence, ignored: Ignored) -> Iterator[PartAlone]:
    """Yield the parts of parameters that one side alone has, but for those of modules that are ``ignored``."""
    for part in parts_alone(correspondence.matches):
        holders = holders_of(part.unit, part.held), {part.partner.module.path}
        if not any(held & paths for held, paths in zip(holders, ignored[:: 1 if part.ours else -1], strict=True)):
            yield part


def part_notes(correspondence: Correspondence, ignored: Ignored, counts: Callable[[PartAlone], bool]) -> Iterator[Note]:
    """Yield the parts of parameters that one side alone has, and that change nothing which is computed."""
    for part in parts_of(correspondence, ignored):
        if not counts(part):
            yield Note("idle_part", _told(part), *_places(part))


def part_finding(part: PartAlone) -> Finding:
    """Return that a part has no counterpart."""
    side = SIDES[not part.ours]
    cause = Cause("missing_parameter", {"name": part.role, "side": side}, verified=True)
    return unmatched(part.held, _places(part), cause, side, Evidence("part_alone", _told(part)))


def unmatched(
    held: Held, places: tuple[Place, Place], cause: Cause | None, side: str | None, *evidence: Evidence
) -> Finding:
    """Return that a parameter has no counterpart: that is a source."""
    what = What("parameter", held.part.parameter)
    rest: dict[str, Any] = {"evidence": evidence, "cause": cause, "source": True, "side": side}
    return Finding(Verdict.UNMATCHED, Phase.PARAMETER, *places, what, **rest)


def _told(part: PartAlone) -> dict[str, Any]:
    held, other = part.held, part.partner
    shapes = {"shape": list(held.shape), "whole": list(held.parameter.shape)}
    return {"side": SIDES[not part.ours], "path": held.parameter.path, **shapes, "other": other.path, "role": part.role}


def _places(part: PartAlone) -> tuple[Place, Place]:
    there = Place(part.partner.module.path, part.partner.module.class_name)
    both = (place_held(part.unit, part.held), there)
    return both if part.ours else both[::-1]


def holders_of(unit: HeldUnit, held: Held) -> set[str]:
    """Return the paths of the modules that a parameter belongs to: its unit's, and where it hangs."""
    path, inside = unit.module.path, parent(held.part.parameter)
    return {path, joined(path, inside) if inside else path}


def place_held(unit: HeldUnit, held: Held) -> Place:
    """Return where a parameter hangs; the class is known where that is the unit's own module."""
    path = parent(held.parameter.path)
    return Place(path, unit.module.class_name if path == unit.module.path else "")
