"""Split a module that holds parameters itself into what it is to the dataflow: layers of a weight and a bias.

Ports written with functions keep in one module what is several layers elsewhere: both projections of a feed-forward
block, a norm beside the linear layer behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import eq

import attrs

from padiff.grouping import grouped
from padiff.kinds import CATALOGUE
from padiff.parameters._correspondence import Correspondence
from padiff.parameters._groups import LINEAR, as_maps, is_map
from padiff.parameters._shapes import bare
from padiff.parameters._units import Held, HeldUnit, Units
from padiff.paths import joined
from padiff.trace import Flow, Source, called, joint_of

ADDED = "add"
"""The operation that puts a bias behind a layer."""


def split_where_left_over(known: Correspondence, flows: tuple[Flow, Flow]) -> tuple[Units, Units] | None:
    """Return the units of both sides, those split that no rule speaks of and that hold what has no counterpart.

    So are those of a recurrent cell, which is written by hand with linear layers. A matrix by itself is one, if the
    other side holds maps of as many features that have no counterpart.
    None where nothing is to be split.
    """
    left, sides = known.left, known.sides
    # What is split gives free what it was matched with, as a whole or in pieces, which is split as well.
    torn = [
        set[str]().union(*(unit.paths for unit in units if unit.loose and unit.paths & some))
        for units, some in zip(sides, left, strict=True)
    ]
    split = [match for match in known.matches if any(map(set.intersection, torn, (one.paths for one in match.units)))]
    lacking = [some | freed for some, freed in zip(left, attrs.evolve(known, matches=split).linked, strict=True)]
    maps = [set(_maps_without(*one)) for one in zip(sides, flows, lacking, strict=True)]
    ours, theirs = (
        [part for unit in units for part in _parts(unit, units, flow, some, maps_there)]
        for units, flow, some, maps_there in zip(sides, flows, lacking, maps[::-1], strict=True)
    )
    same = all(map(eq, (ours, theirs), map(list, sides)))
    return None if same or not all(left) else (ours, theirs)


def _maps_without(units: Units, flow: Flow, lacking: set[str]) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the maps that have no counterpart: of layers, and of matrices that code uses as one."""
    for unit in units:
        kind = CATALOGUE.get(unit.kind or "")
        maps = [unit] if is_map(unit) else [] if kind is None else _maps_of(unit, kind.maps)
        if unit.loose and not unit.paths.isdisjoint(lacking):
            used = (one for part in parts_of(unit, flow) for one in as_maps(part))
            maps = [one for one in used if lies_as_used(one.roles["weight"], flow.contracted) is True]
        yield from (one.roles["weight"].shape for one in maps if one.roles["weight"].parameter.path in lacking)


def _parts(
    unit: HeldUnit, units: Units, flow: Flow, lacking: set[str], maps: set[tuple[int, ...]]
) -> Iterator[HeldUnit]:
    kind = CATALOGUE.get(unit.kind or "")
    inside = {} if kind is None else kind.maps
    if not (unit.loose or inside) or unit.paths.isdisjoint(lacking):
        yield unit
    elif inside:
        yield from _maps_of(unit, inside)
    else:
        beside = [one for one in units if is_map(one) and not one.paths.isdisjoint(lacking)]
        yield from as_layers([*parts_of(unit, flow)], flow, maps, beside)


def as_layers(parts: Units, flow: Flow, maps: set[tuple[int, ...]], beside: Units = ()) -> Iterator[HeldUnit]:
    """Yield parts, or stacks, those as layers that make one of some maps, alone or with more of what takes the same.

    Gates, queries and keys; keys and values of several blocks, of one memory. Layers may stand ``beside`` them, too.
    What makes none so, and is summed with data, may with any others that are: of keys and values that are made of few
    features the matrices may be moved to the queries, and behind what is found.
    """
    taken = grouped([*parts, *beside], lambda part: _taken(part, flow))
    summed = [one for one in parts if _largest(one).parameter.path in flow.contracted and not one.stack]
    for part in parts:
        used = (
            one for one in as_maps(part, split=True) if lies_as_used(one.roles["weight"], flow.contracted) is not False
        )
        ways, fit = [*used], list[HeldUnit]()
        for others in (taken[_taken(part, flow)], summed if part in summed else ()):
            more = [one for one in others if one is not part]
            fit = fit or [one for one in ways if _makes_one(one.roles["weight"].shape, more, maps)]
        # Where both ways of a matrix that is not square fit some map, the dataflow tells which one it is.
        yield fit[0] if len({one.roles["weight"].shape for one in fit}) == 1 else part


def _makes_one(shape: tuple[int, ...], others: Units, maps: set[tuple[int, ...]]) -> bool:
    """Return whether a matrix of some rows and columns makes one of some maps, alone or with rows of others."""
    rows, width = shape
    wanted = {one[0] for one in maps if one[1:] == (width,)}
    sums = {rows}
    for other in (_largest(one).shape for one in others if wanted):
        if width in other:
            more = math.prod(other) // width
            sums |= {known + more for known in sums if known + more <= max(wanted)}
    return not sums.isdisjoint(wanted)


def _largest(part: HeldUnit) -> Held:
    return max(part.roles.values(), key=lambda held: len(held.shape))


def _taken(part: HeldUnit, flow: Flow) -> frozenset[Source] | None:
    """Return what meets the weight of a part, or the layer that it is."""
    names = (*_largest(part).parameter.paths, called(part.module.path))
    return next((flow.takes[name] for name in names if name in flow.takes), None)


def used_as(unit: HeldUnit, contracted: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the maps that a unit is, or may be, to the code that uses it."""
    ways = (one.roles["weight"] for one in as_maps(unit))
    return (weight.shape for weight in ways if lies_as_used(weight, contracted) is not False)


def lies_as_used(weight: Held, contracted: Mapping[str, int]) -> bool | None:
    """Return whether the code sums data with the last axis of a weight as it is laid; None if unknown.

    A square one may lie either way: repeated layers hold theirs alike, and code that takes one otherwise may be wrong.
    """
    axis, part, square = contracted.get(weight.parameter.path), weight.part, len({*weight.shape}) == 1
    if axis is None or part.order is not None:
        return None
    stacked = len(part.at or ())
    if part.ahead <= axis < part.ahead + stacked:
        return False
    axis -= stacked * (axis >= part.ahead)
    last = axis >= (part.merge or (1,))[0]
    return square or last == (part.transpose is None)


def _maps_of(unit: HeldUnit, maps: Mapping[str, Mapping[str, str]]) -> Iterator[HeldUnit]:
    """Yield the linear layers that a unit of a catalogued kind computes with."""
    for name, roles in maps.items():
        held = {role: unit.roles[of_unit] for role, of_unit in roles.items() if of_unit in unit.roles}
        yield HeldUnit(unit.module, joined(unit.name, name), LINEAR, held)


def parts_of(unit: HeldUnit, flow: Flow) -> Iterator[HeldUnit]:
    """Yield the layers that a unit is to the dataflow."""
    groups = _Groups(unit, flow).all()
    for roles in groups if len(groups) > 1 else ():
        main = max(roles, key=lambda role: len(bare(unit.roles[role].shape)))
        yield attrs.evolve(unit, name=main, roles={role: unit.roles[role] for role in unit.roles if role in roles})
    if len(groups) <= 1:
        yield unit


class _Groups:
    """The roles of a unit that are used as one layer: in one operation, or one directly behind the other."""

    def __init__(self, unit: HeldUnit, flow: Flow) -> None:
        self._paths = {role: set(held.parameter.paths) for role, held in unit.roles.items()}
        self._shapes = {role: bare(held.shape) for role, held in unit.roles.items()}
        self._full = {role: held.shape for role, held in unit.roles.items()}
        self._flow = flow
        self._takes: dict[str, frozenset[Source]] = {}
        for key, sources in flow.takes.items():
            self._takes.update((role, sources) for role, paths in self._paths.items() if key in paths)
        self._gives = {
            role: {one for path in self._paths[role] for one in flow.goes.get(path, ())} for role in self._takes
        }

    def all(self) -> list[list[str]]:
        """Return the groups in the order of use; what the run never met comes last, as it is registered."""
        groups: list[list[str]] = []
        for together in self._in_one_operation():
            # Behind a sum of several it may be any one's bias: it is the first one's.
            near = groups if together[0] in self._takes else groups[-1:]
            before = next((one for one in near if len(together) == 1 and self._follows(together[0], one)), None)
            if before is None:
                groups.append(together)
            else:
                before += together
        return groups

    def _in_one_operation(self) -> list[list[str]]:
        """Return the roles by what they take and give; several layers that nothing tells apart as they are listed."""
        alike = grouped(self._takes, lambda role: (self._takes[role], frozenset(self._gives[role])))
        found: list[list[str]] = []
        for roles in alike.values():
            listed = [role for role in self._paths if role in roles]
            vectors = [role for role in listed if len(self._shapes[role]) < 2]
            matrices = [role for role in listed if role not in vectors]
            if not matrices and len({self._shapes[role] for role in vectors}) == 1:
                found.append(vectors)
                continue
            for matrix in matrices:
                bias = next((role for role in vectors if self._is_bias(role, matrix)), None)
                found.append([matrix] if bias is None else [matrix, bias])
                vectors = [role for role in vectors if role != bias]
            found += [[role] for role in vectors]
        return found + [[role] for role in self._paths if role not in self._takes]

    def _follows(self, role: str, group: Sequence[str]) -> bool:
        """Return whether a role is the bias of a group, which is a weight: added right behind it."""
        alike = self._shapes[role] == self._shapes[group[0]] and self._paths[role].isdisjoint(self._flow.contracted)
        if len(group) > 1 or not (alike or self._is_bias(role, group[0])):
            return False
        if role not in self._takes or group[0] not in self._takes:
            return role not in self._takes and group[0] not in self._takes
        weights = {path for other, paths in self._paths.items() if len(self._shapes[other]) > 1 for path in paths}
        ways = [*self._met(self._takes[role])]  # on two, of which one is long, a norm is behind what it scales
        met, own = {source for source, _ in ways}, self._paths[group[0]]
        direct = all(len(way - {ADDED}) <= 1 for _, way in ways)
        return direct and not own.isdisjoint(met) and met <= (weights if own <= weights else own)

    def _met(self, sources: frozenset[Source]) -> Iterator[Source]:
        """Yield what gives values that are taken, be they added to each other before, and on which way."""
        for source, ways in sources:
            if joint_of(source) != ADDED or ways:
                yield source, ways
            else:
                yield from self._met(self._flow.takes.get(source, frozenset()))

    def _is_bias(self, role: str, weight: str) -> bool:
        bias, shape = self._shapes[role], self._shapes[weight]
        if not self._paths[role].isdisjoint(self._flow.contracted):
            return False
        if len(bias) < 2:  # of one number a matrix of one row has it, too
            return len(shape) + (not bias) >= 2 and {*bias} <= {*shape} and len(self._full[weight]) >= 2
        if len(bias) >= len(shape):
            return False
        of_heads = shape[-len(bias) :] == bias  # and what each holds
        return of_heads or (shape[0] == bias[0] and {*bias[1:]} <= {*shape[1:]})
