"""Match a parameter that holds, one behind the other along an axis, what the other side holds in several.

Weights of mixing or of fusion, tables of positions: no layer's rule speaks of them. In which order one holds the others
no shape tells, forcing settles it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import attrs

from padiff.grouping import grouped
from padiff.parameters._correspondence import Correspondence, Packed
from padiff.parameters._groups import Group, takes_channels_apart
from padiff.parameters._packing import Packing
from padiff.parameters._roles import UnitMatch
from padiff.parameters._shapes import bare, extent
from padiff.parameters._units import Held, HeldUnit, Units
from padiff.trace import Flow, Source

_TABLE = "embedding"
_MOST_AXES = 2
"""Axes of what joins others by rows: what has more stacks matrices. One more may hold each at a place of its last."""


def with_joined(known: Correspondence, flows: tuple[Flow, Flow]) -> Correspondence:
    """Return the correspondence with parameters of one side without counterpart as those that they hold of the other's.

    They are those of one module, or of the nearest one around: as many as fill what joins them, in execution order.
    """
    left = known.left
    if not all(left):
        return known
    every = (_alone(*one, axes=_MOST_AXES + 1, apart=True) for one in zip(known.sides, flows, left, strict=True))
    free = [[_flat(unit) or unit for unit in some] for some in every]
    found = [*_joined(free, flows, ours=True), *_joined(free[::-1], flows[::-1], ours=False)]
    packed = [Packed.of(one) for one in found]
    matches = [*known.matches, *(match for one in packed for match in one.matches)]
    return attrs.evolve(known, matches=matches, packed=[*known.packed, *packed])


def with_joined_first(known: Correspondence, flows: tuple[Flow, Flow]) -> Correspondence:
    """Return the correspondence with parameters joined before one shape ties any, where that joins others.

    No rule speaks of them: one that is as large as another may hold several all the same, or be a part itself. No more
    may be left over so.
    """
    packed = [one for one in known.packed if one.packing.layers]
    gone = {match for one in known.packed if one not in packed for match in one.matches}
    gone |= {one for one in known.one_to_one if all(unit.loose or _is_table(unit) for unit in one.units)}
    freed = attrs.evolve(known, matches=[one for one in known.matches if one not in gone], packed=packed)
    joined = with_joined(freed, flows)
    # What joins nothing stays with what it was tied to: it may lie otherwise there, and no shape would tie it again.
    stays = (_with_what_is_left(one, joined.left) for one in known.one_to_one if one in gone)
    other = with_last(attrs.evolve(joined, matches=[*joined.matches, *(one for one in stays if one.links)]), flows)
    wholes, before = ({one.packing.packed.path for one in some.packed} for some in (other, known))
    return other if wholes - before and sum(map(len, other.left)) <= sum(map(len, known.left)) else known


def _with_what_is_left(match: UnitMatch, left: tuple[Set[str], Set[str]]) -> UnitMatch:
    """Return a match with what it ties of parameters that have no counterpart otherwise."""
    links = [
        link
        for link in match.links
        if link.reference.parameter.path in left[0] and link.candidate.parameter.path in left[1]
    ]
    return attrs.evolve(match, links=links)


def with_last(known: Correspondence, flows: tuple[Flow, Flow]) -> Correspondence:
    """Return the correspondence with what is left over of one shape matched in execution order, where both use as many.

    What a loop takes step by step on one side, and a product of all steps on the other, has no place in common. So is
    the only one of a shape matched, whether it is used or not, and several where one side uses none of them.
    """
    left = known.left
    if not all(left):
        return known
    sides = [[*_alone(*one)] for one in zip(known.sides, flows, left, strict=True)]
    met = [
        grouped((unit for unit in units if _is_met(unit, flow)), _shape)
        for units, flow in zip(sides, flows, strict=True)
    ]
    every = [grouped(units, _shape) for units in sides]
    pairs: list[tuple[HeldUnit, HeldUnit]] = []
    for shape in every[0]:
        used, some = ([found.get(shape, []) for found in both] for both in (met, every))
        # What is left of a shape may be read by nobody: that is a fault of the code, at the place where it should be.
        unread = len(some[0]) == len(some[1]) and (len(some[0]) == 1 or not all(used))
        alike = used if len(used[0]) == len(used[1]) > 0 else some if unread else ([], [])
        pairs += zip(*alike, strict=True)
    together = grouped(pairs, lambda both: (both[0].module.path, both[1].module.path))
    found = [UnitMatch.of(*map(_as_one, zip(*few, strict=True))) for few in together.values()]
    return attrs.evolve(known, matches=[*known.matches, *found])


def _shape(unit: HeldUnit) -> tuple[int, ...]:
    return tuple(bare(unit.roles["weight"].shape))


def _is_met(unit: HeldUnit, flow: Flow) -> bool:
    return not flow.takes.keys().isdisjoint(unit.roles["weight"].parameter.paths)


def _as_one(pieces: Units) -> HeldUnit:
    """Return a unit of parameters of one module."""
    return HeldUnit(pieces[0].module, "", None, {piece.name: piece.roles["weight"] for piece in pieces})


def _alone(
    units: Units, flow: Flow, left: set[str], axes: int = _MOST_AXES, *, apart: bool = False
) -> Iterator[HeldUnit]:
    """Yield a unit of each parameter without counterpart that no layer's rule speaks of, in execution order.

    And of those of layers that take each channel ``apart``: code does that with rows of numbers. What a layer's weight
    is computed from has as many axes as that.
    """
    ranks = {path: rank for rank, path in enumerate(flow.takes)}
    found = [
        (min(ranks.get(path, len(ranks)) for path in held.parameter.paths), unit, role, held)
        for unit in units
        for role, held in unit.roles.items()
        if (len(bare(held.shape)) <= axes or unit.module.kind is not None) and held.parameter.path in left
        if unit.loose or _is_table(unit) or (apart and takes_channels_apart(unit))
        if not held.parameter.buffer and held.part.permuted and held.part.transpose is None
    ]
    for _, unit, role, held in sorted(found, key=lambda one: one[0]):
        name = role if unit.kind is None else unit.name
        yield HeldUnit(unit.module, name, None, {"weight": held}, unit.settings)


def _is_table(unit: HeldUnit) -> bool:
    return unit.kind == _TABLE and not unit.stack


def _joined(sides: Sequence[Units], flows: tuple[Flow, Flow], *, ours: bool) -> Iterator[Packing]:
    """Yield what joins which: those of one module first, then those below one further out.

    Of several that fill a whole those are meant that take as many values together as it does: scales of queries and of
    keys take one value, and their shifts another. What one layer holds under two names no parameter joins, but what
    several hold under one: the biases of convolutions whose weights are normed, and the lengths of these.
    """
    wholes, parts = map(list, sides)
    homes: dict[str, str] = {}

    def taken(units: Units, flow: Flow) -> frozenset[Source]:
        paths = (path for unit in units for path in unit.roles["weight"].parameter.paths)
        return frozenset((homes.get(key, key), way) for path in paths for key, way in flow.takes.get(path, ()))

    def members_of(shape: tuple[int, ...], whole: HeldUnit, group: Units) -> Group:
        alike = grouped(group, lambda unit: taken([unit], flows[1]))
        named = grouped(group, _called)
        ways = group, *alike.values(), named.pop(_called(whole), ()), *named.values()
        found = [some for some in (_filling(shape, few) for few in ways) if some and not _of_one_layer(some)]
        values = len(taken([whole], flows[0]))
        return next((some for some in found if len(taken(some, flows[1])) == values), next(iter(found), ()))

    depths = [unit.module.path.count(".") + 1 if unit.module.path else 0 for unit in parts]
    for depth in range(max(depths, default=0), -1, -1):
        for group in grouped(parts, lambda unit: ".".join(unit.module.path.split(".")[:depth])).values():  # noqa: B023
            for whole in list(wholes):
                ways = [(held, members_of(held.shape, whole, group)) for held in _ways(whole)]
                members = next((found for _, found in ways if found), ())
                fits = [attrs.evolve(whole, roles={"weight": held}) for held, found in ways if found == members]
                rows = Packing(((whole,),), members, ours, fits, layers=False) if members else None
                found = rows or _by_columns(whole, group, ours=ours)
                if found is not None:
                    wholes.remove(whole)
                    homes |= {one.roles["weight"].parameter.path: whole.path for one in found.members}
                    gone = {one.path for one in found.members}
                    parts = [one for one in parts if one.path not in gone]
                    group[:] = [one for one in group if one.path not in gone]
                    yield found


def _called(unit: HeldUnit) -> str:
    """Return what its parameter is called in its module."""
    return unit.roles["weight"].part.parameter


def _of_one_layer(members: Units) -> bool:
    """Return whether two of some parameters are those of one layer, where each counts in another way."""
    layers = [unit.module.path for unit in members if unit.module.kind is not None]
    return len({*layers}) < len(layers)


def _ways(whole: HeldUnit) -> Iterator[Held]:
    """Yield how a parameter may hold others: by rows, or at the places of its last axis (real and imaginary parts).

    Rows of more axes are tables, of which one side lists one for each: no layer's rule speaks of what stacks them.
    """
    held = whole.roles["weight"]
    yield held
    if len(held.shape) in (_MOST_AXES, _MOST_AXES + 1):
        last = (len(held.shape) - 1, *range(len(held.shape) - 1))
        yield held.lying(transpose=last)


def _by_columns(whole: HeldUnit, group: Units, *, ours: bool) -> Packing | None:
    """Return a matrix that holds others side by side: vectors that are added up head by head, joined within a head."""
    held, flat = _flat(whole), [_flat(unit) for unit in group]
    matrices = [one for one in flat if one is not None and len(one.roles["weight"].shape) == 2]
    if held is None or len(held.roles["weight"].shape) != 2:
        return None
    weight = held.roles["weight"]
    for one in (weight, weight.lying(transpose=(1, 0))):
        members = _filling(one.shape, matrices, along=1)
        if members:
            lying = attrs.evolve(held, roles={"weight": one})
            return Packing(((lying,),), members, ours, along=1, layers=False)
    return None


def _flat(unit: HeldUnit) -> HeldUnit | None:
    """Return a unit whose parameter has no axis of length one, or no other one; None where it has several."""
    held = unit.roles["weight"]
    ones = [axis for axis, size in enumerate(held.shape) if size == 1]
    if not ones or len(held.shape) == 1:
        return unit
    return attrs.evolve(unit, roles={"weight": held.lying(squeeze=ones[0])}) if len(ones) == 1 else None


def _filling(shape: tuple[int, ...], group: Units, along: int = 0) -> Group:
    """Return the first parameters of a group that, joined along an axis, make a whole one; none where none do."""
    if not shape:
        return ()

    def rest(held: tuple[int, ...]) -> tuple[int, ...]:
        return bare(held[:along] + held[along + 1 :])

    fitting = []
    for unit in group:
        held = unit.roles["weight"].shape
        row = along == 0 and bare(held) == rest(shape)
        if row or (held and rest(held) == rest(shape)):
            fitting.append((unit, extent(held, shape, along)))
    members: Group = ()
    reached: dict[int, Group] = {0: ()}
    for unit, size in reversed(fitting):
        reached |= {count + size: (unit, *some) for count, some in reached.items() if count + size <= shape[along]}
        members = reached.get(shape[along], ())
    return members if len(members) > 1 else ()
