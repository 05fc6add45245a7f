"""Find biases that may count in their sum with others alone: a recurrent cell has two where a port needs one.

The run tells whether they do: what one of them gains, the other one loses.
"""

from __future__ import annotations

import attrs

from padiff.parameters._correspondence import Correspondence
from padiff.parameters._graph import graph_of
from padiff.parameters._units import Held, HeldUnit
from padiff.trace import Flow

Sums = dict[Held, tuple[Held, ...]]
"""What has a counterpart, and what has none and may be added to it."""


def sums_between(known: Correspondence, flow: Flow, *, ours: bool) -> Sums:
    """Return the vectors of one side without counterpart, each at one that has one and lies as it does.

    Both are of one cell, or of one module that no rule speaks of, or their layers give to the same.
    """
    left, units = known.left[not ours], known.sides[not ours]
    places = [(i, held) for i, unit in enumerate(units) for held in unit.roles.values() if len(held.shape) == 1]
    places = [(i, held) for i, held in places if not (held.parameter.buffer or held.part.partial or units[i].stack)]
    alone = [one for one in places if one[1].parameter.path in left]
    found: Sums = {}
    graph = graph_of(units, flow) if alone else None
    for i, held in alone:
        for j, other in places:
            assert graph is not None
            near = _home(units[i]) == _home(units[j]) or graph.gives[i].keys() == graph.gives[j].keys()
            if near and other.parameter.path not in left and _lies_alike(held, other):
                found[other] = (*found.get(other, ()), held)
                break
    return found


def _home(unit: HeldUnit) -> tuple[str, str]:
    return unit.module.path, unit.name.rpartition(".")[0]


def _lies_alike(one: Held, other: Held) -> bool:
    parts = {attrs.evolve(held.part, parameter="") for held in (one, other)}
    return len(parts) == 1 and one.shape == other.shape and one.parameter.trainable == other.parameter.trainable
