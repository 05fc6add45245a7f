"""Choose among units that look alike in the dataflow: by what they lie in, by names beyond doubt, ends, their order.

Names outrank what the dataflow leaves open, and are never taken against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from padiff.alignment import SURE, agreement, namesakes
from padiff.grouping import grouped
from padiff.parameters._colours import Chooser, Pairs
from padiff.parameters._graph import Graph, inputs_behind, outputs_ahead
from padiff.parameters._roles import link_roles
from padiff.parameters._units import Units
from padiff.paths import REPEATED, below, parent, upwards
from padiff.trace import Flow

_ENDS = (inputs_behind, outputs_ahead)


def chooser(ours: Units, theirs: Units, listed: tuple[Units, Units], flows: tuple[Flow, Flow]) -> Chooser:
    """Return what tells which of like units one is, where the dataflow between units leaves that open."""
    ranks = [{unit: rank for rank, unit in enumerate(units)} for units in listed]

    @cache
    def ends() -> list[list[list[frozenset[str]]]]:
        """Return which inputs lead to each unit, and to which outputs it leads, of those that both models have."""
        found = [[of(units, flow) for units, flow in zip((ours, theirs), flows, strict=True)] for of in _ENDS]
        both = [frozenset[str]().union(*one) & frozenset[str]().union(*other) for one, other in found]
        return [[[unit & shared for unit in side] for side in sides] for sides, shared in zip(found, both, strict=True)]

    nested = _nested([unit.module.path for unit in ours])

    homes = [[[*filter(None, upwards(unit.module.path))] for unit in units] for units in (ours, theirs)]
    """Of each side's units, the modules that they lie in, but for the model, the innermost first."""

    def beside(unit: int, like: Sequence[int], free: Sequence[int], known: Mapping[int, int]) -> tuple[list[int], ...]:
        """Return which of the units lie in the innermost module with one that has a partner, and which beside these."""
        told = {home for other in known for home in homes[0][other]}

        def innermost(one: int) -> str | None:
            return next((home for home in homes[0][one] if home in told), None)

        place = innermost(unit)
        partners = (partner for other, partner in known.items() if place in homes[0][other])
        counts = Counter(home for partner in partners for home in homes[1][partner])
        shared = [sum(counts[home] for home in homes[1][j]) for j in free]
        near = [j for j, count in zip(free, shared, strict=True) if count == max(shared)]
        return [i for i in like if innermost(i) == place], near

    def choose(unit: int, like: Sequence[int], free: Sequence[int], known: Mapping[int, int]) -> int:
        """Return the partner that lies in, or holds, the ``known`` partners of what the unit lies in, or holds.

        Where these tell of none it is the one that names give beyond doubt, then the one in the module of what has
        a partner and lies beside the unit, else the one listed at the same place. Which inputs of the model lead there,
        and to which outputs it leads, comes before the place.
        """
        around = [(theirs[known[other]].module.path, inner) for other, inner in nested[unit] if other in known]
        nests = [sum(_is_nested(path, theirs[j].module.path, inner) for path, inner in around) for j in free]
        if nests.count(max(nests)) == 1:
            return free[nests.index(max(nests))]
        sure = agreement([ours[i].path for i in like], [theirs[j].path for j in free])
        row = like.index(unit)
        named = [n for n in range(len(free)) if sure[row, n] >= SURE and (sure[:, n] >= SURE).sum() == 1]
        if len(named) == 1:
            return free[named[0]]
        near = beside(unit, like, free, known)
        like, free = near if len(near[0]) == len(near[1]) else (like, free)
        for mine, yours in ends():
            near = [i for i in like if mine[i] == mine[unit]], [j for j in free if yours[j] == mine[unit]]
            like, free = near if len(near[0]) == len(near[1]) else (like, free)
        place = sorted(like, key=lambda i: ranks[0][ours[i]]).index(unit)
        return sorted(free, key=lambda j: ranks[1][theirs[j]])[place]

    return choose


def among_nearest(choose: Chooser, graphs: tuple[Graph, Graph]) -> Chooser:
    """Return what chooses among those of like units that keep most ways to what has a partner, on both sides.

    Where the models differ in between, that is what is left of the dataflow.
    """

    def narrowed(unit: int, like: Sequence[int], free: Sequence[int], known: Pairs) -> int:
        ours = {i: _ways(graphs[0], i, known) for i in like}
        theirs = {j: _ways(graphs[1], j, {partner: partner for partner in known.values()}) for j in free}

        @cache
        def near(ways: frozenset[tuple[int, int]]) -> list[int]:
            kept = [len(ways & theirs[j]) for j in free]
            return [j for j, count in zip(free, kept, strict=True) if count == max(kept)]

        partners = near(ours[unit])
        rivals = [i for i in like if near(ours[i]) == partners]
        return choose(unit, *((rivals, partners) if len(rivals) == len(partners) else (like, free)), known)

    return narrowed


def _ways(graph: Graph, unit: int, known: Mapping[int, int]) -> frozenset[tuple[int, int]]:
    """Return the partners of what a unit takes, and of what takes its values, each with which of both it is."""
    sides = graph.takes[unit], graph.gives[unit]
    return frozenset((known[node], side) for side, nodes in enumerate(sides) for node in nodes if node in known)


def _nested(paths: Sequence[str]) -> list[list[tuple[int, bool]]]:
    """Return for each module (another one, whether it lies inside) for all that lie in it, or around it."""
    at = grouped(range(len(paths)), paths.__getitem__)
    found: list[list[tuple[int, bool]]] = [[] for _ in paths]
    for place, path in enumerate(paths):
        for around in filter(None, upwards(parent(path))):
            for other in at.get(around, ()):
                found[other].append((place, True))
                found[place].append((other, False))
    return found


def _is_nested(other: str, path: str, inner: bool) -> bool:
    """Return whether another module lies in one, as its ``inner`` one, or around it."""
    inside, around = (other, path) if inner else (path, other)
    return bool(around and below(inside, around))


def as_named(pairs: Mapping[int, int], left: Mapping[int, int], ours: Units, theirs: Units) -> dict[int, int]:
    """Return the pairs, with symmetries exchanged as names beyond doubt say, where all fit so.

    What is ``left`` may be exchanged with others of its colour: no name outranks the dataflow. A port that takes keys
    for values under the same names is a fault: whoever loads weights by name meets it.
    """
    named = namesakes([unit.path for unit in ours], [unit.path for unit in theirs])
    found, owner = dict(pairs), {j: i for i, j in pairs.items() if i in left}

    def following(unit: int) -> int | None:
        other = owner.get(named.get(unit, -1))
        return other if other is not None and left[other] == left[unit] else None

    for first in owner.values():
        cycle, other = [first], following(first)
        while other is not None and other not in cycle:
            cycle.append(other)
            other = following(other)
        if other == first and len(cycle) > 1 and all(link_roles(ours[i], theirs[named[i]])[0] for i in cycle):
            found.update({i: named[i] for i in cycle})
    return found


def as_numbered(pairs: Mapping[int, int], graphs: tuple[Graph, Graph]) -> dict[int, int]:
    """Return the pairs with the numbers of repeated layers taken at their word, where everything fits so.

    Blocks that the candidate runs in another order than their numbers, or leaves out, are a fault: whoever loads
    weights by name meets it. Where a unit has no counterpart of its number that fits, or all units have one and their
    numbers say another set (they begin with 1), the numbers mean something else on each side.
    """
    ours, theirs = graphs[0].units, graphs[1].units
    places = {(theirs[j].path, theirs[j].name): j for j in graphs[1].own}
    found = {}
    for i, j in pairs.items():
        # What is numbered on one side alone is something inside: `layers.1.ffn.0` against `blocks.1.mlp.fc1`.
        numbers = iter(REPEATED.findall(ours[i].path))
        named = REPEATED.sub(lambda met: next(numbers, met[0]), theirs[j].path)  # noqa: B023  used at once
        other = places.get((named, theirs[j].name))
        # What is split, or packed, on one side does not fit by itself.
        if other is None or (link_roles(ours[i], theirs[j])[0] and not link_roles(ours[i], theirs[other])[0]):
            return dict(pairs)
        found[i] = other
    whole = all(i in pairs for i in range(len(ours)) if graphs[0].is_met(i))
    said, used = set(found.values()), set(pairs.values())
    return found if len(said) == len(used) and (said == used or not whole) else dict(pairs)


def as_catalogued(pairs: Pairs, known: Pairs, graphs: tuple[Graph, Graph]) -> Pairs:
    """Return the pairs, those of modules of which one lacks units by the names that the catalogue has for these.

    Of two recurrent layers against one the second is left over, whichever of both the one looks like from an end of
    the dataflow. What is ``known`` stays.
    """
    (ours, mine), (theirs, yours) = (
        (graph.units, {(graph.units[i].module.path, graph.units[i].name): i for i in graph.own if graph.units[i].kind})
        for graph in graphs
    )
    found = dict(pairs)
    for i, j in sorted(pairs.items() - known.items()):
        others = found.keys() - {i}, {*found.values()} - {j}
        names = (
            (i, yours.get((theirs[j].module.path, ours[i].name))),
            (mine.get((ours[i].module.path, theirs[j].name)), j),
        )
        for a, b in names:
            if a is None or b is None or a in others[0] or b in others[1] or not link_roles(ours[a], theirs[b])[0]:
                continue
            del found[i]
            found[a] = b
            break
    return found
