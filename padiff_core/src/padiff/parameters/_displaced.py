"""Ask whether the layer in front of one that packs others, or behind it, packs them instead, where that is as large.

Shapes do not tell which of both it is, and where one of them was taken for a layer of the other side first, the other
one was left to pack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from padiff.grouping import grouped
from padiff.parameters._graph import Graph
from padiff.parameters._packers import packing_of
from padiff.parameters._packing import Packing
from padiff.parameters._units import HeldUnit


def displaced(packings: Sequence[Packing], graphs: tuple[Graph, Graph]) -> Iterator[list[Packing]]:
    """Yield the packings with those of repeated layers moved to the layers in front of these, or behind."""
    for alike in grouped(packings, lambda one: one.repeated).values():
        for ahead in (False, True):
            moved = {one: found for one in alike if (found := _moved(one, graphs[not one.ours], ahead)) is not None}
            units = [unit for one in packings for unit in moved.get(one, one).units]
            if moved and len(units) == len({*units}):
                yield [moved.get(one, one) for one in packings]


def _moved(packing: Packing, graph: Graph, ahead: bool) -> Packing | None:
    """Return what another layer packs instead, of those that the packed one takes values of or gives values to."""
    if len(packing.together) > 1 or packing.behind or packing.places or not packing.layers:
        return None
    place = graph.units.index(packing.packed)
    nodes = (graph.gives if ahead else graph.takes)[place]
    around = [graph.units[node] for node in nodes if node < len(graph.units) and node != place]
    found = (
        packing_of((one,), packing.members, packing.ours, packing.along)
        for one in around
        if _looks(one) == _looks(packing.packed)
    )
    return next((one for one in found if one is not None), None)


def _looks(unit: HeldUnit) -> object:
    return unit.kind, len(unit.stack), {role: held.shape for role, held in unit.roles.items()}
