"""Match what one side never runs: which of several like layers it leaves out is for the dataflow to say."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set

from padiff.alignment import namesakes
from padiff.parameters._colours import Pairs, preserved
from padiff.parameters._graph import Graph
from padiff.parameters._groups import parent_of
from padiff.parameters._roles import FULL, UnitMatch, link_roles
from padiff.parameters._units import HeldUnit


def with_left_out(
    matches: Sequence[UnitMatch],
    graphs: tuple[Graph, Graph],
    packed: Pairs,
    regions: Sequence[Hashable],
    run: Set[HeldUnit],
) -> list[UnitMatch]:
    """Return the matches, what one side alone runs exchanged with others of its shape where more of the dataflow fits.

    The first of its shape took the partner that is left, whatever takes its values. ``packed`` units are matched as
    well, and ``regions`` of the reference's units are those that the user mapped. What runs once more behind itself is
    called in the place of what never runs, which was not left out. What names say beyond doubt stays.
    """
    found = list(matches)
    left = [unit for one in matches for unit in one.units if one.links and unit not in run]
    if not left:
        return found
    places = [{unit: place for place, unit in enumerate(graph.units)} for graph in graphs]
    named = namesakes([one.reference.path for one in matches], [one.candidate.path for one in matches])
    sure = {one.reference for place, one in enumerate(matches) if named.get(place) == place}

    def kept(some: Sequence[UnitMatch]) -> tuple[int, int, int]:
        pairs = {places[0][one.reference]: places[1][one.candidate] for one in some if one.links}
        return preserved(graphs, {**pairs, **packed})

    def crossed(one: UnitMatch, other: UnitMatch) -> list[UnitMatch]:
        """Return the matches with the partners of two in each other's place; as they are where that does not fit."""
        turned = {one: (one.reference, other.candidate), other: (other.reference, one.candidate)}
        near = len({(regions[places[0][match.reference]], parent_of(match.candidate)) for match in turned}) == 1
        fits = near and all(link_roles(*both)[0] >= FULL for both in turned.values())
        return [UnitMatch.of(*turned[match]) if match in turned else match for match in found] if fits else found

    for unit in left:
        one = next(match for match in found if unit in match.units)
        if not run.isdisjoint(one.units):
            side = one.units.index(unit)
            others = [other for other in found if other.links and other.reference not in sure]
            again = {other for other in others if _runs_again(graphs[side], places[side][other.units[side]])}
            tried = [crossed(one, other) for other in others if other not in again]
            found = max([found, *(some for some in tried if some is not found)], key=kept)
    return found


def _runs_again(graph: Graph, unit: int) -> bool:
    """Return whether what a unit takes is made, beside it, of what it gives; a tied table reaches all from all."""
    home = parent_of(graph.units[unit])
    beside = {node for node, one in enumerate(graph.units) if parent_of(one) == home}
    beside |= {*range(len(graph.units), len(graph.takes))}
    seen: set[int] = set()
    ahead = [*graph.takes[unit]]
    while ahead:
        node = ahead.pop()
        ahead += graph.takes[node] if node in beside - seen else ()
        seen.add(node)
    return unit in seen
