"""Find what a packed layer and its members give to channel by channel: a norm of all channels, and a norm of each."""

from __future__ import annotations

from collections.abc import Sequence, Set

import attrs

from padiff.kinds import CONVOLUTIONS
from padiff.parameters._graph import Graph
from padiff.parameters._groups import is_map
from padiff.parameters._packing import Packing
from padiff.parameters._units import HeldUnit
from padiff.trace import settings_of


def with_norms(packings: Sequence[Packing], graphs: tuple[Graph, Graph], free: Set[HeldUnit]) -> list[Packing]:
    """Return the packings, each with the units behind it that go with it: ``free`` ones, which lie as its layers do."""
    found = []
    for packing in packings:
        mine, yours = graphs if packing.ours else graphs[::-1]
        if all(map(is_map, (packing.packed, *packing.members))) and not packing.along and len(packing.together) == 1:
            packed = _norm_behind(packing.packed, mine, free)
            members = [_norm_behind(member, yours, free) for member in packing.members]
            some = tuple(unit for unit in members if unit is not None)
            if packed is not None and len(some) == len(members):
                packing = attrs.evolve(packing, behind=((packed, some),))
        found.append(packing)
    return found


def _norm_behind(unit: HeldUnit, graph: Graph, free: Set[HeldUnit]) -> HeldUnit | None:
    """Return the only unit that takes what a layer gives, and nothing else, if it takes each channel by itself.

    That is one that has vectors of as many channels, and a convolution in as many groups.
    """
    place, channels = graph.units.index(unit), unit.roles["weight"].shape[:1]
    takers = [node for node in graph.gives[place] if {*graph.takes[node]} == {place}]
    if len(takers) != 1 or takers[0] >= len(graph.units):
        return None
    behind = graph.units[takers[0]]
    apart = (settings_of(behind).get("groups"),) == channels if behind.kind in CONVOLUTIONS else False
    shapes = [held.shape[:1] if apart else held.shape for held in behind.roles.values()]
    fits = behind.kind is not None and all(shape == channels for shape in shapes)
    return behind if fits and behind in free else None
