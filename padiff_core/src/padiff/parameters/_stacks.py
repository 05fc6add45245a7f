"""Take together what one model lists and the other stacks: experts, layers, heads along an axis of a parameter.

Lists in lists may be stacked along two axes. Both sides are then stacks of units, of which one
stands for all: they are matched, and packed, as single units are. What is at one place of a stack belongs to what is at
that place of the other.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final, Literal

import attrs

from padiff.grouping import grouped
from padiff.parameters._correspondence import Correspondence
from padiff.parameters._roles import UnitMatch
from padiff.parameters._splitting import as_layers, parts_of, used_as
from padiff.parameters._units import Held, HeldUnit, Units
from padiff.trace import Flow

Sides = tuple[Units, Units]
Extents = tuple[int, ...]
"""How many a list has, and each list in it."""
Axes = Sequence[Literal["first", "inner", "last"]]
FIRST: Final = "first"
INNER: Final = "inner"
LAST: Final = "last"
_NUMBER = re.compile(r"\d+")
_WHOLE: tuple[int, Extents] = (0, ())


def stacked(
    known: Correspondence, flows: tuple[Flow, Flow], *, deepest: int = 1, along: Axes = (FIRST,)
) -> Sides | None:
    """Return the units of both sides with stacks for what one of them lists and the other stacks, None without any.

    Lists may be in lists, ``deepest`` of them; they lie ``along`` some axes, of which the first that fits counts. One
    of a list may have found a counterpart that only looks like one: it is listed with those beside it that did not.
    """
    left = known.left
    found = [list(units) for units in known.sides]
    for mine, yours in ((0, 1), (1, 0)):
        free = [unit for unit in found[mine] if _is_free(unit, left[mine])]
        wanted = {extents for unit in free for held in _stackable(unit) for extents in _extents(held, deepest, along)}
        listed = [part for unit in found[yours] for part in _parts(unit, flows[yours], left[yours])] if wanted else []
        families = {
            family: extents
            for family, extents in _families(listed, wanted)
            if any(_is_free(unit, left[yours]) for unit in family.stack)
        }
        if families:
            wanted = {*families.values()}
            cut = {unit: [*_cut(unit, flows[mine], wanted, along)] for unit in free}
            found[mine] = [one for unit in found[mine] for one in cut.get(unit, [unit])]
            found[yours] = _folded(listed, families)
    return _as_they_lie(found, flows) if any(unit.stack for unit in found[0]) else None


def stacked_on_both(known: Correspondence, flows: tuple[Flow, Flow]) -> Sides | None:
    """Return the units of both sides with what both stack taken for stacks of layers, None without any such.

    They may lie otherwise on one side, or be packed: two maps of each expert there, and one with both here.
    """
    free = [
        [unit for unit in units if _is_free(unit, left)] for units, left in zip(known.sides, known.left, strict=True)
    ]
    held = ([held for unit in units for held in _stackable(unit)] for units in free)
    wanted = set.intersection(*({extents for one in some for extents in _extents(one, 1, (FIRST,))} for some in held))
    if not wanted:
        return None
    cut = [
        {unit: [*_cut(unit, flow, wanted, (FIRST,))] for unit in units} for units, flow in zip(free, flows, strict=True)
    ]
    found = [
        [one for unit in units for one in parts.get(unit, [unit])]
        for units, parts in zip(known.sides, cut, strict=True)
    ]
    return _as_they_lie(found, flows)


def _as_they_lie(found: Sequence[Units], flows: tuple[Flow, Flow]) -> Sides:
    """Return units, the stacks of no layer as stacks of layers where the other side has such maps."""
    maps = [set(_maps(units, flow)) for units, flow in zip(found, flows, strict=True)]
    ours, theirs = (_with_layers(*one) for one in zip(found, flows, maps[::-1], strict=True))
    return ours, theirs


def _maps(units: Units, flow: Flow) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the maps that stacks are, or may be."""
    for unit in units:
        yield from used_as(unit, flow.contracted) if unit.stack else ()


def _with_layers(units: Units, flow: Flow, maps: set[tuple[int, ...]]) -> Units:
    loose = [unit for unit in units if unit.stack and unit.kind is None]
    made = dict(zip(loose, as_layers(loose, flow, maps), strict=True))
    return [made.get(unit, unit) for unit in units]


def in_places(stacks: Units, lists: Units) -> Iterator[tuple[HeldUnit, HeldUnit]]:
    """Yield what some units of one parameter hold at each place of their first axis, after what others list there.

    Of several that fit, one of the same name goes first.
    """
    free = {unit: next(iter(unit.roles.items())) for unit in stacks if len(unit.roles) == 1}
    wanted = {held.shape[:1] for _, held in free.values() if len(held.shape) > 1}
    for family, extents in _families([unit for unit in lists if len(unit.roles) == 1], wanted):
        ((name, one),) = family.roles.items()
        fits = [unit for unit, (_, held) in free.items() if held.shape == (*extents, *one.shape)]
        if fits:
            role, held = free.pop(whole := max(fits, key=lambda unit: free[unit][0] == name))
            for place, listed in enumerate(family.stack):
                yield listed, attrs.evolve(whole, roles={role: held.lying(at=(place,))})


def _is_free(unit: HeldUnit, left: Set[str]) -> bool:
    return unit.special is None and not unit.paths.isdisjoint(left)


def _parts(unit: HeldUnit, flow: Flow, left: Set[str]) -> list[HeldUnit]:
    """Return the layers that a unit is to the dataflow where no rule speaks of it, and it has no counterpart.

    What a list of parameters calls by its place alone has one role in all of them.
    """
    parts = [*parts_of(unit, flow)] if unit.loose and _is_free(unit, left) else []
    listed = (len(part.roles) == 1 and part.name.isdecimal() for part in parts)
    named = [
        attrs.evolve(part, roles=dict.fromkeys(["weight"], *part.roles.values())) if one else part
        for part, one in zip(parts, listed, strict=True)
    ]
    return named if len(parts) > 1 else [unit]


def unstacked(found: Correspondence, known: Correspondence) -> Correspondence:
    """Return a correspondence with its stacks taken apart; its units are those that ``known`` has, where it has any."""
    if not any(unit.stack for unit in found.reference):
        return found
    matches = [one for match in found.matches for one in _each(match)]
    symmetric = frozenset(one for unit in found.symmetric for one in unit.units)
    ours, theirs = known.reference, known.candidate
    return attrs.evolve(found, reference=ours, candidate=theirs, matches=matches, symmetric=symmetric)


def _each(match: UnitMatch) -> Iterator[UnitMatch]:
    """Yield the matches of what is at each place of two stacks; one that ties no parameters may be of a stack alone."""
    if not any(unit.stack for unit in match.units):
        yield match
        return
    if not match.links:
        return
    roles = [{held: role for role, held in unit.roles.items()} for unit in (unit.units[0] for unit in match.units)]
    for one, other in zip(match.reference.stack, match.candidate.stack, strict=True):
        links = [
            attrs.evolve(
                link, reference=one.roles[roles[0][link.reference]], candidate=other.roles[roles[1][link.candidate]]
            )
            for link in match.links
        ]
        yield UnitMatch(one, other, links)


def _stackable(unit: HeldUnit) -> Iterator[Held]:
    """Yield the parameters of a unit that may stack others."""
    if unit.loose:
        yield from (held for held in unit.roles.values() if len(held.shape) > 1)


def _extents(held: Held, deepest: int, along: Axes) -> Iterator[Extents]:
    """Yield the extents of the axes along which a parameter may stack others."""
    return (extents for _, extents in _lying(held, deepest, along))


def _lying(held: Held, deepest: int, along: Axes) -> Iterator[tuple[int, Extents]]:
    """Yield where a parameter may stack others: how many of their axes lie ahead, and the extents of its own."""
    count = len(held.shape)
    starts = {FIRST: range(1), INNER: range(1, count - 1), LAST: range(count - 1, count)}
    for start in itertools.chain(*map(starts.__getitem__, along)):
        for depth in range(1, min(deepest, count - 1, count - start) + 1):
            extents = held.shape[start : start + depth]
            if extents[0] > 1:
                yield start, extents


def _families(units: Units, wanted: Set[Extents]) -> Iterator[tuple[HeldUnit, Extents]]:
    """Yield stacks of units that are alike, and whose paths differ in some numbers, with how many each number counts.

    Lists of lists come first, then the innermost, and numbers of repeated modules before those that are part of a name
    (`w1`, `w2`).
    """
    groups: dict[tuple[tuple[str, ...], object], dict[Extents, HeldUnit]] = {}
    for unit in units:
        if unit.special is not None:
            continue
        shapes = tuple((role, held.shape) for role, held in unit.roles.items())
        for depth in {*map(len, wanted)}:
            for met in itertools.combinations(_NUMBER.finditer(unit.path), depth):
                ends = [0, *(end for one in met for end in one.span()), len(unit.path)]
                between = tuple(unit.path[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True))
                numbers = tuple(int(one[0]) for one in met)
                groups.setdefault((between, (unit.kind, shapes)), {}).setdefault(numbers, unit)
    taken: set[HeldUnit] = set()
    for _, group in sorted(groups.items(), key=lambda item: _rank(item[0][0]), reverse=True):
        extents = tuple(len({*numbers}) for numbers in zip(*group, strict=True))
        family = tuple(group[numbers] for numbers in sorted(group))
        if extents in wanted and len(family) == math.prod(extents) and not taken & {*family}:
            taken |= {*family}
            yield attrs.evolve(family[0], stack=family), extents


def _rank(between: tuple[str, ...]) -> tuple[int, bool, int]:
    return len(between), all(itertools.starmap(_is_bare, itertools.pairwise(between))), len(between[0])


def _is_bare(before: str, behind: str) -> bool:
    """Return whether a number stands between these as a name of its own."""
    return (not before or before.endswith(".")) and (not behind or behind.startswith("."))


def _folded(units: Units, families: Iterable[HeldUnit]) -> list[HeldUnit]:
    stands = {member: family for family in families for member in family.stack}
    return list(dict.fromkeys(stands.get(unit, unit) for unit in units))


def _covers(lying: tuple[int, Extents], axis: int) -> bool:
    """Return whether an axis is one along which others are stacked: not so where it is summed with data."""
    start, extents = lying
    return start <= axis < start + len(extents)


def _cut(unit: HeldUnit, flow: Flow, wanted: Set[Extents], along: Axes) -> Iterator[HeldUnit]:
    """Yield a unit with what it stacks as stacks of their own: of a weight and the bias that is added behind it."""
    deepest = max(map(len, wanted))
    inside: dict[Held, tuple[int, Extents]] = {}
    for held in _stackable(unit):
        summed = flow.contracted.get(held.parameter.path, -1)
        fits = [one for one in _lying(held, deepest, along) if one[1] in wanted and not _covers(one, summed)]
        inside[held] = max(fits, key=lambda one: len(one[1]), default=_WHOLE)
    kinds = grouped(unit.roles, lambda role: inside.get(unit.roles[role], _WHOLE)[1])
    for extents, roles in kinds.items():
        if not extents:
            yield attrs.evolve(unit, roles={role: unit.roles[role] for role in roles}) if len(kinds) > 1 else unit
            continue
        places = [
            {role: unit.roles[role].lying(at=at, ahead=inside[unit.roles[role]][0]) for role in roles}
            for at in itertools.product(*map(range, extents))
        ]
        for part in parts_of(attrs.evolve(unit, roles=places[0]), flow):
            stack = [
                attrs.evolve(
                    part,
                    name=".".join((part.name, *map(str, next(iter(place.values())).part.at or ()))),
                    roles={role: place[role] for role in part.roles},
                )
                for place in places
            ]
            yield attrs.evolve(part, roles=stack[0].roles, stack=tuple(stack))
