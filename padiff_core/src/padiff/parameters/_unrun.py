"""Pack layers of models that are never run: kinds, shapes, names and the order of definition are all that tells."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from padiff.alignment import SURE, agreement
from padiff.parameters._correspondence import Correspondence
from padiff.parameters._graph import ENDS, Graph, Labels, graph_of
from padiff.parameters._packers import find_packings
from padiff.parameters._packing import Packing
from padiff.parameters._roles import UnitMatch, link_roles
from padiff.parameters._units import HeldUnit, Units
from padiff.paths import parent
from padiff.trace import Flow


def packed_unrun(matches: Sequence[UnitMatch], ours: Units, theirs: Units) -> list[UnitMatch]:
    """Return the matches, and of what found no counterpart a packed layer with those that are as wide together.

    They stand side by side in one module, all of them or those of one shape (q, k and v; a gate and what it gates);
    that the packed one holds them one behind the other is a guess.
    """
    left = without_counterpart(ours, theirs, matches)
    mine, yours = ([unit for unit in units if unit in left] for units in (ours, theirs))
    packings: list[Packing] = []
    for alike in (False, True):
        listed = _listed(mine, alike=alike), _listed(yours, alike=alike)
        packings += find_packings(listed, left, {}, gone={unit for one in packings for unit in one.units})
    gone = {unit for packing in packings for unit in packing.units}
    kept = [match for match in matches if gone.isdisjoint(match.units)]
    for place, packing in enumerate(packings):
        packings[place], kept = _in_order(packing, kept, ours, theirs)
    return kept + [match for packing in packings for match in packing.matches(next(packing.arrangements()))]


def with_unmet(known: Correspondence, flows: tuple[Flow, Flow]) -> Correspondence:
    """Return the correspondence, with what neither run met, and found no counterpart, packed as where nothing runs."""
    left = without_counterpart(known.reference, known.candidate, known.matches)
    sides = zip((known.reference, known.candidate), flows, strict=True)
    graphs = [graph_of(units, flow) for units, flow in sides] if left else []
    unmet = [[one for i, one in enumerate(graph.units) if one in left and not graph.is_met(i)] for graph in graphs]
    return attrs.evolve(known, matches=packed_unrun(known.matches, *unmet)) if all(unmet) and unmet else known


def _in_order(
    packing: Packing, matches: list[UnitMatch], ours: Units, theirs: Units
) -> tuple[Packing, list[UnitMatch]]:
    """Return a packing, and the other matches, with what both share out in the order of definition on both sides.

    A layer of a member's shape that stands beside the packed one took a partner that only its shape told: the query
    for the output of an attention. What names tell beyond doubt stays.
    """
    packed, member = packing.packed, packing.members[0]
    sides = (ours, theirs) if packing.ours else (theirs, ours)
    ranks = [{unit: rank for rank, unit in enumerate(units)} for units in sides]

    def is_shared(match: UnitMatch) -> bool:
        mine, yours = match.units if packing.ours else match.units[::-1]
        homes = parent(mine.path) == parent(packed.path), parent(yours.path) == parent(member.path)
        sure = agreement([mine.path], [yours.path])[0, 0] >= SURE
        return all(homes) and not sure and any(link_roles(mine, one)[0] for one in packing.members)

    shared = [match for match in matches if is_shared(match)] if len(packing.together) == 1 else []
    if not shared or any(unit not in ranks[1] for unit in packing.members):
        return packing, matches
    pairs = [match.units if packing.ours else match.units[::-1] for match in shared]
    free = iter(sorted((*packing.members, *(yours for _, yours in pairs)), key=ranks[1].__getitem__))
    holders = sorted((packed, *(mine for mine, _ in pairs)), key=ranks[0].__getitem__)
    taken = {one: tuple(next(free) for _ in (packing.members if one is packed else (one,))) for one in holders}
    again = [(one, taken[one][0])[:: 1 if packing.ours else -1] for one, _ in pairs]
    found = attrs.evolve(packing, members=taken[packed])
    if not found.fits or not all(link_roles(*both)[0] for both in again):
        return packing, matches
    return found, [match for match in matches if match not in shared] + [UnitMatch.of(*both) for both in again]


def _listed(units: Units, *, alike: bool) -> Graph:
    """Return units as a graph in which all take the same, or those of one shape."""
    shapes = [tuple(held.shape for held in unit.roles.values()) if alike else () for unit in units]
    nodes = {shape: len(units) + place for place, shape in enumerate(dict.fromkeys(shapes))}
    takes: list[dict[int, Labels]] = [{nodes[shape]: frozenset()} for shape in shapes]
    return Graph(units, takes + [{} for _ in range(max(ENDS, len(nodes)))], [], range(len(units)))


def without_counterpart(ours: Units, theirs: Units, matches: Sequence[UnitMatch]) -> set[HeldUnit]:
    """Return the units that found no counterpart that fits."""
    return {*ours, *theirs}.difference(*(match.units for match in matches if match.links))
