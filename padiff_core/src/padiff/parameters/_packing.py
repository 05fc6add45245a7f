"""Match a packed layer with the layers that it packs: one linear that gives q, k and v against three.

A packed layer, linear or a convolution, computes several maps of one input. So its counterparts are found by
structure: they stand side by side, take the same tensor, and their outputs together are as wide. In which order it
packs them, and whether head by head, no shape tells: forcing settles it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from padiff.parameters._arrangements import Arrangement, orders_of
from padiff.parameters._groups import LINEAR, Group
from padiff.parameters._links import bare
from padiff.parameters._roles import UnitMatch
from padiff.parameters._units import Held, HeldUnit, with_added

_MOST_ORDERS = 24
"""Orders in which members are tried beside each other: all of four."""


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
    wide: int = 1
    """So many members are added up, and pack the columns of the same rows: a gate's of the input, and of the state."""

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
            together = len(members) if self.along else self.wide
            for start in range(0, len(members), together) if together > 1 else ():
                members[start : start + together] = _with_one_bias(members[start : start + together])
            found += (
                self._match(self._cut(*packed[whole], one, rows, columns), one)
                for member, whole, rows in lie
                for one, columns in self._columns(members[member * self.wide :][: self.wide], arrangement.way)
            )
        for unit, others in self.behind:
            cuts = ((self._cut(unit, unit.roles, others[member], rows), others[member]) for member, _, rows in lie)
            found += [self._match(piece, member) for piece, member in cuts]
        return tuple(found)

    def _columns(self, members: Sequence[HeldUnit], way: int) -> Iterator[tuple[HeldUnit, tuple[int, int] | None]]:
        """Yield the members that lie in the same rows with their columns, in one of the orders; one has all of them."""
        orders, stop = beside_each_other(self.wide), 0
        for place in orders[way % len(orders)]:
            start, stop = stop, stop + members[place].roles["weight"].shape[1] if self.wide > 1 else 0
            yield members[place], (start, stop) if self.wide > 1 else None

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
        for order in orders_of(self.members[:: self.wide]):
            if len([*Arrangement(order).rows(self._sizes(), self._wholes())]) == len(order):
                yield order

    def named(self, arrangement: Arrangement) -> str:
        """Return one way of packing in words."""
        lie = (self._columns(self.members[i * self.wide :][: self.wide], arrangement.way) for i in arrangement.order)
        names = ", ".join(" beside ".join(one.path.rpartition(".")[2] for one, _ in some) for some in lie)
        groups = f" in {arrangement.groups} groups" if arrangement.groups > 1 else ""
        joined = ("", ", by columns")[self.along] if self.along < 2 else ", one for each place of its kernel"
        return f"packs {names}{groups}{joined}"

    def _sizes(self) -> list[int]:
        whole = self.ways[0][0]["weight"].shape
        return [extent(unit.roles["weight"].shape, whole, self.along) for unit in self.members[:: self.wide]]

    def _wholes(self) -> list[int]:
        weights = (self.ways[0][0]["weight"], *(unit.roles["weight"] for unit in self.beside))
        return [held.shape[self.along] for held in weights]

    def _cut(
        self,
        unit: HeldUnit,
        roles: Mapping[str, Held],
        member: HeldUnit,
        rows: tuple[tuple[int, int], ...],
        columns: tuple[int, int] | None = None,
    ) -> HeldUnit:
        """Return the piece of a packed layer that is one of its members, with a bias that the member may lack."""
        cut = {}
        for role, held in roles.items():
            whole = self.along and len(held.shape) < 2
            if role in member.roles or not (whole or self.along or columns):
                shape = list(held.shape)
                if not whole:
                    own = member.roles.get(role)
                    size = sum(stop - start for start, stop in rows)
                    shape[self.along] = size if own is None else extent(own.shape, held.shape, self.along)
                where: dict[str, Any] = {"rows": rows, "along": self.along}
                if columns and len(shape) > 1:
                    shape[1], where["columns"] = columns[1] - columns[0], columns
                first, *added = (one if whole else _part_of(one, tuple(shape), **where) for one in (held, *held.added))
                cut[role] = attrs.evolve(first, added=tuple(added))
        name = member.path.rpartition(".")[2]
        kind = unit.kind or (LINEAR if self.layers else None)
        return HeldUnit(unit.module, name, kind, cut, unit.settings)

    def _match(self, piece: HeldUnit, member: HeldUnit) -> UnitMatch:
        match = UnitMatch.of(*(piece, member)[:: 1 if self.ours else -1])
        return attrs.evolve(match, links=[attrs.evolve(x, open=False) for x in match.links]) if self._turns else match


def _part_of(held: Held, shape: tuple[int, ...], **where: Any) -> Held:
    return attrs.evolve(held, part=attrs.evolve(held.part, **where), shape=shape)


def _with_one_bias(members: Sequence[HeldUnit]) -> list[HeldUnit]:
    """Return layers whose results are added up with all their biases at the first one that has any."""
    biases = [unit.roles["bias"] for unit in members if "bias" in unit.roles]
    return with_added(members, dict(zip(biases[:1], [biases[1:]], strict=False)))


def beside_each_other(count: int) -> list[tuple[int, ...]]:
    """Return the orders in which so many may lie beside each other, the first of very many."""
    return list(itertools.islice(itertools.permutations(range(count)), _MOST_ORDERS))


def extent(shape: Sequence[int], whole: Sequence[int], along: int = 0) -> int:
    """Return how much of an axis of a whole shape a part of it takes: one that is a single row may lack the axis."""
    lacking = along >= len(shape) or (along == 0 and bare(shape) == bare(whole[1:]))
    return 1 if lacking else shape[along]
