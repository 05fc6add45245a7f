"""Match a packed layer with the layers that it packs: one linear that gives q, k and v against three.

A packed layer, linear or a convolution, computes several maps of one input. So its counterparts are found by
structure: they stand side by side, take the same tensor, and their outputs together are as wide. In which order it
packs them, and whether head by head, no shape tells: forcing settles it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any

import attrs

from padiff.parameters._arrangements import Arrangement, orders_of
from padiff.parameters._graph import Graph
from padiff.parameters._groups import (
    LINEAR,
    TABLE,
    Group,
    added_up,
    as_maps,
    is_map,
    keys_and_values,
    of_one_parent,
    row_of,
    side_by_side,
    tables,
)
from padiff.parameters._links import bare
from padiff.parameters._roles import UnitMatch, link_roles
from padiff.parameters._units import Held, HeldUnit, with_added
from padiff.trace import settings_of


@attrs.frozen(eq=False)
class Packing:
    """A packed unit of one side and the units of the other that it packs, in execution order.

    Where these are stacks, each place of the packed one packs what is at that place, all in one way.
    """

    packed: HeldUnit
    members: tuple[HeldUnit, ...]
    ours: bool
    """Whether the packed unit is the reference's."""
    ways: Sequence[Sequence[Mapping[str, Held]]]
    """The ways in which its weight and bias may lie, as those of a linear layer; in each, those of every place."""
    along: int = 0
    """The axis along which the members are joined: 0 where they take the same, 1 where they add up to what it gives.

    That of a convolution's kernel where they also take the same, each at another place.
    """
    layers: bool = True
    """Whether it packs layers, and not parameters that no layer's rule speaks of: these say nothing of modules."""
    beside: Group = ()
    """Units beside the packed one that pack the rest of the members: query here, and key with value there."""
    behind: tuple[tuple[HeldUnit, Group], ...] = ()
    """A unit that takes the packed one's channels by themselves, and those that take its members': norms."""

    @property
    def units(self) -> Group:
        """Return all units of both sides that it is about."""
        behind = (unit for packed, members in self.behind for unit in (packed, *members))
        return (self.packed, *self.beside, *self.members, *behind)

    def arrangements(self) -> Iterator[Arrangement]:
        """Yield every way to pack the members: the likeliest first, and last those in groups."""
        straight, *others = self._orders()
        divisor = math.gcd(*self._sizes()) if self.along == 0 and self.layers else 1
        grouped = [n for n in range(2, divisor + 1) if divisor % n == 0]
        plain = (Arrangement(order) for order in (straight, *others))
        alike = (Arrangement(straight, groups) for groups in grouped)
        rest = (Arrangement(order, groups) for groups in grouped for order in others)
        for one in (*plain, *alike, *rest):
            yield from (attrs.evolve(one, way=way) for way in range(len(self.ways) * (2 if self._turns else 1)))

    def matches(self, arrangement: Arrangement) -> tuple[UnitMatch, ...]:
        """Return what belongs together under one way of packing, member by member."""
        lie = sorted(arrangement.rows(self._sizes(), self._wholes()))
        found: list[UnitMatch] = []
        turned = arrangement.way >= len(self.ways)
        for place, roles in enumerate(self.ways[arrangement.way % len(self.ways)]):
            packed = [(self.packed.units[place], roles), *((unit, unit.roles) for unit in self.beside)]
            members = [one.units[place].turned if turned else one.units[place] for one in self.members]
            members = _with_one_bias(members) if self.along else members
            found += (
                self._match(self._cut(*packed[whole], members[member], rows), members[member])
                for member, whole, rows in lie
            )
        for unit, others in self.behind:
            cuts = ((self._cut(unit, unit.roles, others[member], rows), others[member]) for member, _, rows in lie)
            found += [self._match(piece, member) for piece, member in cuts]
        return tuple(found)

    @property
    def _turns(self) -> bool:
        """Return whether its members may lie the other way round, all of them alike."""
        return all(one.turns for one in self.members)

    @property
    def fits(self) -> bool:
        """Return whether its members fill the packed layers, in some order."""
        return sum(self._sizes()) == sum(self._wholes()) and next(self._orders(), None) is not None

    def _orders(self) -> Iterator[tuple[int, ...]]:
        """Yield the orders of members that fill the packed layers, the likeliest first."""
        for order in orders_of(self.members):
            if len([*Arrangement(order).rows(self._sizes(), self._wholes())]) == len(order):
                yield order

    def named(self, arrangement: Arrangement) -> str:
        """Return one way of packing in words."""
        names = ", ".join(self.members[i].path.rpartition(".")[2] for i in arrangement.order)
        groups = f" in {arrangement.groups} groups" if arrangement.groups > 1 else ""
        joined = ("", ", by columns")[self.along] if self.along < 2 else ", one for each place of its kernel"
        return f"packs {names}{groups}{joined}"

    def _sizes(self) -> list[int]:
        whole = self.ways[0][0]["weight"].shape
        return [extent(unit.roles["weight"].shape, whole, self.along) for unit in self.members]

    def _wholes(self) -> list[int]:
        weights = (self.ways[0][0]["weight"], *(unit.roles["weight"] for unit in self.beside))
        return [held.shape[self.along] for held in weights]

    def _cut(
        self, unit: HeldUnit, roles: Mapping[str, Held], member: HeldUnit, rows: tuple[tuple[int, int], ...]
    ) -> HeldUnit:
        """Return the piece of a packed layer that is one of its members, with a bias that the member may lack."""
        cut = {}
        for role, held in roles.items():
            whole = self.along and len(held.shape) < 2
            if role in member.roles or not (whole or self.along):
                shape = list(held.shape)
                if not whole:
                    own = member.roles.get(role)
                    size = sum(stop - start for start, stop in rows)
                    shape[self.along] = size if own is None else extent(own.shape, held.shape, self.along)
                first, *added = (
                    one if whole else _part_of(one, tuple(shape), rows=rows, along=self.along)
                    for one in (held, *held.added)
                )
                cut[role] = attrs.evolve(first, added=tuple(added))
        name = member.path.rpartition(".")[2]
        kind = unit.kind or (LINEAR if self.layers else None)
        return HeldUnit(unit.module, name, kind, cut, unit.settings)

    def _match(self, piece: HeldUnit, member: HeldUnit) -> UnitMatch:
        reference, candidate = (piece, member) if self.ours else (member, piece)
        links = link_roles(reference, candidate)[1]
        return UnitMatch(reference, candidate, [attrs.evolve(x, open=False) for x in links] if self._turns else links)


def _part_of(held: Held, shape: tuple[int, ...], **where: Any) -> Held:
    return attrs.evolve(held, part=attrs.evolve(held.part, **where), shape=shape)


def _with_one_bias(members: Sequence[HeldUnit]) -> list[HeldUnit]:
    """Return layers whose results are added up with all their biases at the first one that has any."""
    biases = [unit.roles["bias"] for unit in members if "bias" in unit.roles]
    return with_added(members, dict(zip(biases[:1], [biases[1:]], strict=False)))


def extent(shape: Sequence[int], whole: Sequence[int], along: int = 0) -> int:
    """Return how much of an axis of a whole shape a part of it takes: one that is a single row may lack the axis."""
    lacking = along >= len(shape) or (along == 0 and bare(shape) == bare(whole[1:]))
    return 1 if lacking else shape[along]


def find_packings(
    graphs: tuple[Graph, Graph],
    unmatched: Set[HeldUnit],
    known: Mapping[int, int],
    *,
    gone: Set[HeldUnit] = frozenset(),
    freed: bool = False,
) -> list[Packing]:
    """Return the packed units of either side with what they pack, each unit in one packing at most.

    ``graphs`` are those of reference and candidate, whose units at ``known`` indices belong together; ``unmatched``
    the units that found no counterpart of their own shape, and ``gone`` those that are in a packing already. Where
    units may be ``freed``, one that found a counterpart packs a group some of which did not.
    """
    found: list[Packing] = []
    taken = set(gone)
    for fitting in (partial(_as_wide, freed=freed), _shared, _whatever_they_take):
        for mine, yours, ours in ((graphs[0], graphs[1], True), (graphs[1], graphs[0], False)):
            chosen = _disjoint(list(fitting(mine, yours, ours, unmatched, taken)), graphs, known)
            found += chosen
            taken.update(unit for packing in chosen for unit in packing.units)
    return found


def _disjoint(fitting: Sequence[Packing], graphs: tuple[Graph, Graph], known: Mapping[int, int]) -> list[Packing]:
    """Return packings of which no two share a unit: those amid most of what belongs together, then the first.

    They come in the order of the packed units.
    """
    chosen: list[Packing] = []
    gone: set[HeldUnit] = set()
    for packing in sorted(fitting, key=lambda one: -_same_around(one, graphs, known)):
        if gone.isdisjoint(packing.units):
            gone.update(packing.units)
            chosen.append(packing)
    return [packing for packing in fitting if packing in chosen]


def _as_wide(
    mine: Graph, yours: Graph, ours: bool, unmatched: Set[HeldUnit], taken: Set[HeldUnit], *, freed: bool
) -> Iterator[Packing]:
    """Yield units with layers that, joined along an axis, are as wide: these take the same, or give to the same."""
    groups = [(0, group) for group in (*side_by_side(yours), *tables(yours, unmatched))]
    groups += [(1, group) for group in added_up(yours, unmatched)]
    groups = [one for one in groups if taken.isdisjoint(one[1]) and not unmatched.isdisjoint(one[1])]
    for unit in mine.units:
        for along, group in groups if unit not in taken and (freed or unit in unmatched) else ():
            found = packing_of(unit, group, ours, along)
            if found is not None:
                yield found
            elif along and _taps(unit, group):
                yield Packing(unit, group, ours, [[unit.roles]], _kernel_axis(unit))


def _shared(mine: Graph, yours: Graph, ours: bool, unmatched: Set[HeldUnit], taken: Set[HeldUnit]) -> Iterator[Packing]:
    """Yield what several layers pack together: all that take one value, against more that do on the other side."""
    few, many = (
        [one for one in side_by_side(graph) if taken.isdisjoint(one) and not unmatched.isdisjoint(one)]
        for graph in (mine, yours)
    )
    for packed, members in itertools.product(few, many):
        found = shared_packing(packed, members, ours)
        if found is not None:
            yield found


def packing_of(unit: HeldUnit, members: Group, ours: bool, along: int = 0) -> Packing | None:
    """Return the packing of layers in one, if they are as wide as it is, joined along an axis."""
    ways = [way for way in as_maps(unit) if packs(way, members, along)]
    return Packing(unit, members, ours, [[one.roles for one in way.units] for way in ways], along) if ways else None


def shared_packing(packed: Group, members: Group, ours: bool) -> Packing | None:
    """Return the packing of layers in fewer ones, each of which packs some of them, if they fill these."""
    if not len(packed) < len(members) or not _pack_alike(packed, members):
        return None
    found = Packing(packed[0], members, ours, [[packed[0].roles]], beside=packed[1:])
    return found if found.fits else None


def _whatever_they_take(
    mine: Graph, yours: Graph, ours: bool, unmatched: Set[HeldUnit], taken: Set[HeldUnit]
) -> Iterator[Packing]:
    """Yield layers that pack what takes several values: keys with values apart from queries, or queries with both."""
    free = {*unmatched} - taken
    groups = [*keys_and_values(yours, free), *of_one_parent(yours, free)]
    for unit in mine.units:
        fits = (one for one in groups if is_map(unit) and packs(unit, one) and free.issuperset((unit, *one)))
        members = next(fits, None)
        if members is not None:
            free -= {unit, *members}
            yield Packing(unit, members, ours, [[unit.roles]])


def _same_around(packing: Packing, graphs: tuple[Graph, Graph], known: Mapping[int, int]) -> float:
    """Return how much of what a packed layer and its members take belongs together, and of what they give to."""
    pair = (packing.packed, packing.members[0]) if packing.ours else (packing.members[0], packing.packed)
    places = [graph.units.index(unit) for graph, unit in zip(graphs, pair, strict=True)]
    score = 0.0
    for around in ([graph.takes for graph in graphs], [graph.gives for graph in graphs]):
        ours, theirs = (set(nodes[place]) for nodes, place in zip(around, places, strict=True))
        same = {known[node] for node in ours if node in known} & theirs
        score += len(same) / max(1, len(ours), len(theirs))
    return score


def _pack_alike(packed: Group, members: Group) -> bool:
    """Return whether layers are maps of the same, of which some together are as wide as others together."""
    weights = [[unit.roles["weight"].shape for unit in units] for units in (packed, members)]
    maps = {row_of(shape) for shapes in weights for shape in shapes}
    return len(maps) == 1 and not any(unit.stack for unit in (*packed, *members))


def packs(unit: HeldUnit, members: Sequence[HeldUnit], along: int = 0) -> bool:
    """Return whether the weights of layers, joined along an axis, are as large as a packed one's."""
    if {len(member.stack) for member in members} != {len(unit.stack)} or (
        any((member.kind == TABLE) is not (unit.kind == TABLE) for member in members)
    ):
        return False
    weight = unit.roles["weight"].shape
    shapes = [member.roles["weight"].shape for member in members]
    if settings_of(unit).get("groups", 1) not in ((1, len(members)) if along == 0 else (1,)):
        return False
    rest = (row_of, _column)[along]
    return all(rest(one) == rest(weight) for one in shapes) and sum(one[along] for one in shapes) == weight[along]


def _kernel_axis(unit: HeldUnit) -> int:
    """Return the only axis of a convolution's kernel, but for those of one element; 0 where there are none, or more."""
    shape = unit.roles["weight"].shape if "weight" in unit.roles else ()
    axes = [axis for axis in range(2, len(shape)) if shape[axis] > 1]
    return axes[0] if len(axes) == 1 else 0


def _taps(unit: HeldUnit, members: Sequence[HeldUnit]) -> bool:
    """Return whether layers, one for each element of a convolution's kernel, hold what it does."""
    axis = _kernel_axis(unit)
    if not axis or not is_map(unit) or any(one.stack for one in (unit, *members)):
        return False
    weight = unit.roles["weight"].shape
    shapes = [member.roles["weight"].shape for member in members]
    return len(members) == weight[axis] and all(math.prod(one[2:]) == 1 and one[:2] == weight[:2] for one in shapes)


def _column(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one column."""
    return (shape[0], *shape[2:])
