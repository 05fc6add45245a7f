"""Take together what one model lists and the other stacks: experts, layers, heads along a first axis of one parameter.

Both sides are then stacks of units, of which one stands for all: they are matched, and packed, as single units are.
What is at one place of a stack belongs to what is at that place of the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import attrs

from padiff.parameters._correspondence import Correspondence
from padiff.parameters._roles import UnitMatch
from padiff.parameters._splitting import parts_of
from padiff.parameters._units import Held, HeldUnit, Units
from padiff.trace import Flow

Sides = tuple[Units, Units]
_NUMBER = re.compile(r"\d+")


def stacked(known: Correspondence, flows: tuple[Flow, Flow]) -> Sides | None:
    """Return the units of both sides with stacks for what one of them lists and the other stacks, None without any.

    One of a list may have found a counterpart that only looks like one: it is listed with those beside it that did not.
    """
    sides, left = known.sides, known.left
    free = [
        [unit for unit in units if unit.special is None and unit.paths & some]
        for units, some in zip(sides, left, strict=True)
    ]
    found = [list(units) for units in sides]
    for mine, yours in ((0, 1), (1, 0)):
        lengths = {held.shape[0] for unit in free[mine] for held in _stackable(unit)}
        families = [one for one in _families(sides[yours], lengths) if not {*free[yours]}.isdisjoint(one.stack)]
        lengths &= {len(family.stack) for family in families}
        if lengths:
            found[mine] = [one for unit in found[mine] for one in _cut(unit, flows[mine], lengths, left[mine])]
            found[yours] = _folded(found[yours], families)
    return (found[0], found[1]) if any(unit.stack for unit in found[0]) else None


def unstacked(found: Correspondence, known: Correspondence) -> Correspondence:
    """Return a correspondence with its stacks taken apart; its units are those that ``known`` has, where it has any."""
    if not any(unit.stack for unit in found.reference):
        return found
    matches = [one for match in found.matches for one in _each(match)]
    symmetric = frozenset(one for unit in found.symmetric for one in unit.units)
    ours, theirs = known.reference, known.candidate
    return attrs.evolve(found, reference=ours, candidate=theirs, matches=matches, symmetric=symmetric)


def _each(match: UnitMatch) -> Iterator[UnitMatch]:
    """Yield the matches of what is at each place of two stacks."""
    if not match.reference.stack:
        yield match
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
        yield from (held for held in unit.roles.values() if len(held.shape) > 1 and held.shape[0] > 1)


def _families(units: Units, lengths: set[int]) -> Iterator[HeldUnit]:
    """Yield stacks of units that are alike, and whose paths differ in one number.

    The innermost comes first, and numbers of repeated modules before those that are part of a name (`w1`, `w2`).
    """
    groups: dict[tuple[str, str, object], list[tuple[int, HeldUnit]]] = {}
    for unit in units:
        if unit.special is not None:
            continue
        shapes = tuple((role, held.shape) for role, held in unit.roles.items())
        for met in _NUMBER.finditer(unit.path):
            key = unit.path[: met.start()], unit.path[met.end() :], (unit.kind, shapes)
            groups.setdefault(key, []).append((int(met[0]), unit))
    taken: set[HeldUnit] = set()
    for _, group in sorted(groups.items(), key=lambda item: (_is_bare(*item[0][:2]), len(item[0][0])), reverse=True):
        family = tuple(unit for _, unit in sorted(group, key=lambda one: one[0]))
        if len(family) in lengths and not taken & {*family}:
            taken |= {*family}
            yield attrs.evolve(family[0], stack=family)


def _is_bare(before: str, behind: str) -> bool:
    """Return whether a number stands between these as a name of its own."""
    return (not before or before.endswith(".")) and (not behind or behind.startswith("."))


def _folded(units: Units, families: Sequence[HeldUnit]) -> list[HeldUnit]:
    stands = {member: family for family in families for member in family.stack}
    return list(dict.fromkeys(stands.get(unit, unit) for unit in units))


def _cut(unit: HeldUnit, flow: Flow, lengths: set[int], left: set[str]) -> Iterator[HeldUnit]:
    """Yield a unit with what it stacks as stacks of their own: of a weight and the bias that is added behind it."""
    length = _length(unit, lengths, left)
    if length is None:
        yield unit
        return
    inside = {role: held for role, held in unit.roles.items() if held in _stackable(unit) and held.shape[0] == length}
    rest = {role: held for role, held in unit.roles.items() if role not in inside}
    if rest:
        yield attrs.evolve(unit, roles=rest)
    first = attrs.evolve(unit, roles={role: held.lying(at=0) for role, held in inside.items()})
    for part in parts_of(first, flow):
        places = [
            attrs.evolve(part, name=f"{part.name}.{n}", roles={role: inside[role].lying(at=n) for role in part.roles})
            for n in range(length)
        ]
        yield attrs.evolve(part, roles=places[0].roles, stack=tuple(places))


def _length(unit: HeldUnit, lengths: set[int], left: set[str]) -> int | None:
    counts = Counter(held.shape[0] for held in _stackable(unit) if held.parameter.path in left)
    return next((length for length, _ in counts.most_common() if length in lengths), None)
