"""See layers that take the same as one whole, as wide as they are together: packed or not, it looks the same.

Where one side packs what the other holds apart, the dataflow between single units differs around each of them, and a
unit as large as another one is easily taken for it. Between wholes it is the same on both sides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set

import attrs

from padiff.grouping import grouped
from padiff.parameters._colours import Chooser, Pairs, matched_by_colour
from padiff.parameters._graph import Graph
from padiff.parameters._groups import Group, as_maps, is_map, keys_and_values, parent_of, row_of, several, side_by_side
from padiff.parameters._packers import packing_of
from padiff.parameters._packing import Packing
from padiff.parameters._units import HeldUnit

_Size = tuple[tuple[int, ...], int]
"""The shape of one row, and how many there are."""


def packings_of_wholes(
    graphs: tuple[Graph, Graph], regions: tuple[Sequence[Hashable], Sequence[Hashable]], choose: Chooser
) -> list[Packing]:
    """Return the packings that show where layers that take the same are seen as wholes, on both sides.

    A whole that finds no counterpart is seen as a smaller one, or divided.
    """
    lone: set[Group] = set()
    while True:
        wholes = _wholes(*graphs, lone), _wholes(*graphs[::-1], lone)
        if not any(wholes):
            return []
        seen = _joined(graphs[0], wholes[0]), _joined(graphs[1], wholes[1])
        pairs, _ = matched_by_colour(seen, regions, choose)
        matched = {graphs[0].units[i] for i in pairs}, {graphs[1].units[j] for j in pairs.values()}
        without = {
            whole for some, known in zip(wholes, matched, strict=True) for whole in some if whole[0] not in known
        }
        if not without:
            return [*_packings(graphs, wholes, pairs)]
        lone |= without


def _packings(
    graphs: tuple[Graph, Graph], wholes: tuple[Sequence[Group], Sequence[Group]], pairs: Pairs
) -> Iterator[Packing]:
    """Yield what is packed in matched wholes, those of which one side has fewer layers."""
    first = [{whole[0]: whole for whole in some} for some in wholes]
    for i, j in sorted(pairs.items()):
        units = graphs[0].units[i], graphs[1].units[j]
        ours, theirs = (found.get(unit, (unit,)) for found, unit in zip(first, units, strict=True))
        for mine, yours in _by_module(ours, theirs):
            fewer = len(mine) < len(yours)
            packing = packing_of(*((mine, yours) if fewer else (yours, mine)), fewer)
            if packing is not None:
                yield packing


def _by_module(ours: Group, theirs: Group) -> Iterator[tuple[Group, Group]]:
    """Yield what belongs together of two wholes: the layers of each module, where as many have as wide ones, else all.

    What a condition makes of itself in each block (modulations) is packed there, each block's by itself.
    """
    if 1 in (len(ours), len(theirs)):  # no whole, or one that packs the other
        yield ours, theirs
        return
    modules = [[*map(tuple, grouped(whole, parent_of).values())] for whole in (ours, theirs)]
    widths = [[sum(_rows(some)) for some in whole] for whole in modules]
    yield from zip(*modules, strict=True) if widths[0] == widths[1] else [(ours, theirs)]


def _joined(graph: Graph, wholes: Sequence[Group]) -> Graph:
    """Return a graph whose wholes are one unit each, as wide as their members together."""
    places = [[graph.units.index(unit) for unit in whole] for whole in wholes]
    units = list(graph.units)
    for whole, nodes in zip(wholes, places, strict=True):
        units[nodes[0]] = _as_one(whole)
    joined = graph.joined(places)
    return attrs.evolve(joined, units=units, jointed=joined.jointed and attrs.evolve(joined.jointed, units=units))


def _as_one(whole: Group) -> HeldUnit:
    """Return a unit with the shapes of a packed one."""
    first = whole[0]
    roles = {}
    for role, held in first.roles.items():
        rows = sum(unit.roles[role].shape[0] for unit in whole if role in unit.roles)
        roles[role] = attrs.evolve(held, shape=(rows, *held.shape[1:]))
    return attrs.evolve(first, roles=roles)


def _wholes(mine: Graph, yours: Graph, lone: Set[Group]) -> list[Group]:
    """Return the groups of one side of which no two share a unit, and that the other side may divide otherwise.

    Those that are known to be ``lone`` are none.
    """
    others: dict[_Size, set[tuple[int, ...]]] = {}
    for group in (*_groups(yours), *((unit,) for unit in yours.units for unit in as_maps(unit))):
        others.setdefault(_size(group), set()).add(_rows(group))
    found: list[Group] = []
    taken: set[HeldUnit] = set()
    for group in _groups(mine):
        if group not in lone and taken.isdisjoint(group) and others.get(_size(group), set()) - {_rows(group)}:
            found.append(group)
            taken.update(group)
    return found


def _groups(graph: Graph) -> Iterator[Group]:
    """Yield the layers that take the same, those of all modules together first; of an attention, keys with values."""
    takes = dict(zip(graph.units, map(frozenset, graph.takes), strict=False))
    maps = (unit for unit in takes if is_map(unit) and takes[unit] and not unit.stack)
    yield from several(grouped(maps, lambda unit: (row_of(unit.roles["weight"].shape), takes[unit])))
    yield from (group for group in side_by_side(graph) if not any(unit.stack for unit in group))
    yield from keys_and_values(graph, {*graph.units})


def _rows(group: Group) -> tuple[int, ...]:
    return tuple(sorted(unit.roles["weight"].shape[0] for unit in group))


def _size(group: Group) -> _Size:
    return row_of(group[0].roles["weight"].shape), sum(_rows(group))
