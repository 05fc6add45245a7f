"""Find the layers that stand together in one model, so that the other one may pack them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from typing import Any

import attrs

from padiff.grouping import grouped
from padiff.kinds import CONVOLUTIONS, PRODUCTS
from padiff.parameters._graph import Graph
from padiff.parameters._units import Held, HeldUnit
from padiff.paths import parent, unnumbered
from padiff.trace import settings_of

LINEAR = "linear"
TABLE = "embedding"
_OF_MEMORY = "k", "v"
"""The units of an attention that take the same, whatever the queries are of."""
Group = tuple[HeldUnit, ...]


def is_map(unit: HeldUnit) -> bool:
    """Return whether each row of the weight is a map of all input channels by itself."""
    return unit.kind in PRODUCTS and "weight" in unit.roles and settings_of(unit).get("groups", 1) == 1


def takes_channels_apart(unit: HeldUnit) -> bool:
    """Return whether a unit is a convolution of each channel by itself."""
    weight = unit.roles.get("weight") if unit.kind in CONVOLUTIONS else None
    return weight is not None and (settings_of(unit).get("groups"),) == weight.shape[:1]


def as_maps(unit: HeldUnit, *, split: bool = False) -> Iterator[HeldUnit]:
    """Yield a unit as the maps of one input that it is; of a matrix that no rule speaks of, each way it may lie.

    A table of vectors is a map, too, and a convolution in groups is one for each of these. Of what has more axes some
    may be one that is ``split``: heads, and what each holds.
    """
    if (unit.kind in PRODUCTS and "weight" in unit.roles) or unit.kind == TABLE:
        yield unit
    if unit.kind is not None:
        return
    matrix, *vectors = _by_size(unit)
    count, ways = len(matrix.shape), [dict[str, Any]()]
    if len(vectors) > 1 or count < 2:
        return
    if count > 2:
        ways = [{"merge": (first, count - first)} for first in range(1, count) if split]
        # Heads, and what each holds, around their inputs: `[heads, in, size]`.
        inside = [(*(axis for axis in range(count) if axis != inner), inner) for inner in range(1, count - 1) if split]
        ways += [{"order": order, "merge": (count - 1, 1)} for order in inside]
    for way, transpose in itertools.product(ways, (None, (1, 0))):
        lying = {**way, "transpose": transpose}
        places = [attrs.evolve(one, kind=LINEAR, roles=_as_linear(one, lying), stack=()) for one in unit.units]
        weight, *biases = places[0].roles.values()
        if all(held.shape == weight.shape[:1] for held in biases):
            yield attrs.evolve(places[0], stack=tuple(places) if unit.stack else ())


def _as_linear(unit: HeldUnit, lying: Mapping[str, Any]) -> dict[str, Held]:
    """Return the matrix of a unit, and the vector beside it, as those of a linear layer."""
    weight, *biases = _by_size(unit)
    flat = (one if len(one.shape) == 1 else one.lying(merge=(len(one.shape),)) for one in biases)
    return dict(zip(("weight", "bias"), (weight.lying(**lying), *flat), strict=False))


def _by_size(unit: HeldUnit) -> list[Held]:
    """Return what a unit holds, the largest first."""
    return sorted(unit.roles.values(), key=lambda held: (-math.prod(held.shape), -len(held.shape)))


def side_by_side(graph: Graph) -> Iterator[Group]:
    """Yield the maps of one parent, or of one attention, that take the same values alike, in execution order.

    Behind them come those that also give to the same: of stacked blocks without norms all maps take one sum. Then come
    those of one shape that take the same in modules of their own, the experts of a mixture.
    """
    both = zip(graph.units, graph.takes, strict=False)
    takes = {unit: frozenset(taken) for unit, taken in both if is_map(unit) and taken}
    groups = grouped(takes, lambda unit: (parent_of(unit), row_of(unit.roles["weight"].shape), takes[unit]))
    together = list(several(groups))
    yield from together
    gives = dict(zip(graph.units, map(frozenset, graph.gives), strict=False))
    for group in together:
        parts = grouped(group, gives.__getitem__)
        yield from several(parts if len(parts) > 1 else {})
    alike = grouped(takes, lambda unit: (unit.roles["weight"].shape, takes[unit]))
    yield from (group for group in several(alike) if len({*map(parent_of, group)}) == len(group))


def tables(graph: Graph, unmatched: Set[HeldUnit]) -> Iterator[Group]:
    """Yield the tables of one parent that have no counterpart: another model may look up all of them in one."""
    lone = (unit for unit in graph.units if unit in unmatched and unit.kind == TABLE)
    return several(grouped(lone, lambda unit: parent(unit.module.path)))


def added_up(graph: Graph, unmatched: Set[HeldUnit]) -> Iterator[Group]:
    """Yield the linear maps of one parent without counterpart that give to the same, as wide, in execution order.

    Behind them come those of which some have one, by their looks alone.
    """
    gives = dict(zip(graph.units, map(frozenset, graph.gives), strict=False))

    def together(unit: HeldUnit) -> Hashable:
        return parent(unit.module.path), gives[unit], unit.roles["weight"].shape[0]

    maps = [unit for unit in gives if is_map(unit) and gives[unit]]
    lone = list(several(grouped((unit for unit in maps if unit in unmatched), together)))
    yield from lone
    yield from (group for group in several(grouped(maps, together)) if group not in lone)


def giving_alike(graph: Graph, unmatched: Set[HeldUnit]) -> Iterator[Group]:
    """Yield the maps of one shape without counterpart that give to the same, whatever each takes."""
    lone = ((unit, given) for unit, given in zip(graph.units, graph.gives, strict=False) if unit in unmatched and given)
    gives = {unit: frozenset(given) for unit, given in lone if is_map(unit)}
    return several(grouped(gives, lambda unit: (unit.roles["weight"].shape, gives[unit])))


def keys_and_values(graph: Graph, unmatched: Set[HeldUnit]) -> Iterator[Group]:
    """Yield the keys and values of one attention without counterpart: all its units take what it is given, as one."""
    lone = (unit for unit in graph.units if unit in unmatched and unit.name in _OF_MEMORY and is_map(unit))
    return several(grouped(lone, lambda unit: unit.module.path))


def of_one_parent(graph: Graph, unmatched: Set[HeldUnit]) -> Iterator[Group]:
    """Yield the linear maps of one parent without counterpart, whatever they take: queries of the last steps, say."""
    return several(grouped((unit for unit in graph.units if unit in unmatched and is_map(unit)), parent_of))


def is_list(group: Group) -> bool:
    """Return whether units differ in their numbers alone: what holds them holds them in the order of these."""
    return len({unnumbered(unit.path) for unit in group}) == 1


def stripes(graph: Graph, unmatched: Set[HeldUnit]) -> list[Group]:
    """Return layers without counterpart each alone, and those that are used together, what takes the same together."""
    used = _Used(graph, unmatched)
    return [*((unit,) for unit in used.takes), *used.groups(used.takes)]


def bands(graph: Graph, unmatched: Set[HeldUnit]) -> list[Group]:
    """Return layers without counterpart that are used together, what is added up together."""
    used = _Used(graph, unmatched)
    return used.groups(used.gives)


class _Used:
    """The layers without counterpart, and matrices that may be some: what they take, and which sums they are in."""

    def __init__(self, graph: Graph, unmatched: Set[HeldUnit]) -> None:
        lone = [
            (unit, i)
            for i, unit in enumerate(graph.units)
            if unit in unmatched and unit.kind != TABLE and not unit.stack and any(as_maps(unit))
        ]
        self.takes = {unit: frozenset(graph.takes[i]) for unit, i in lone}
        self.gives = {unit: frozenset(graph.with_joints.gives[i]) for unit, i in lone}

    def groups(self, first: Mapping[HeldUnit, frozenset[int]]) -> list[Group]:
        """Return those that give to the same, whose sums are of the same, or that are of one parent, without repeats.

        In each of them what has the same of ``first`` stands together, what takes the same likewise.
        """
        added = grouped(self.gives, self.gives.__getitem__)
        summed = {
            unit: frozenset[int]().union(*map(self.takes.__getitem__, added[self.gives[unit]])) for unit in self.gives
        }
        together = itertools.chain(*grouped(first, first.__getitem__).values())
        units = list(together)
        ways: list[Callable[[HeldUnit], Hashable]] = [self.gives.__getitem__, summed.__getitem__, _home]
        return list(dict.fromkeys(group for way in ways for group in several(grouped(units, way))))


def _home(unit: HeldUnit) -> str:
    return unit.module.path if unit.loose else parent_of(unit)


def several(groups: Mapping[Any, Sequence[HeldUnit]]) -> Iterator[Group]:
    """Yield the groups of more than one."""
    return (tuple(group) for group in groups.values() if len(group) > 1)


def parent_of(unit: HeldUnit) -> str:
    """Return the path of what a unit is one of: of the attention that has it, or of the module around."""
    return unit.module.path if unit.name else parent(unit.module.path)


def row_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one row; a kernel of one element is none."""
    return tuple(shape[1:2]) if set(shape[2:]) <= {1} else tuple(shape[1:])
