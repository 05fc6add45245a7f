"""Match a packed layer with the layers that it packs: one linear that gives q, k and v against three.

A packed layer, linear or a convolution, computes several maps of one input. So its counterparts are found by
structure: they stand side by side, take the same tensor, and their outputs together are as wide. In which order it
packs them, and whether head by head, no shape tells: forcing settles it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import attrs

from padiff.parameters._arrangements import (
    Arrangement,
    Rows,
    beside_each_other,
    exchanged,
    exchanged_roles,
    orders_of,
    orders_of_roles,
)
from padiff.parameters._groups import LINEAR, TABLE, Group
from padiff.parameters._roles import UnitMatch
from padiff.parameters._shapes import extent
from padiff.parameters._units import Held, HeldUnit
from padiff.paths import last, unnumbered

_MOST_NAMED = 8
"""Members that are named in words."""
_INSIDE = re.compile(r"(?<=[^.\d])\d+|\d+(?=[^.\d])")
"""A number that is part of a module's name, and not all of it."""
_Holder = tuple[HeldUnit, Mapping[str, Held], tuple[tuple[int, int], ...]]
"""A packed unit, how it lies, and the rows of it that a member has."""
_Piece = tuple[HeldUnit, HeldUnit]
"""What of a packed unit belongs to what of a member."""


@attrs.frozen(eq=False)
class Packing:
    """A packed unit of one side and the units of the other that it packs, in execution order.

    Where these are stacks, each place of the packed one packs what is at that place, all in one way.
    """

    stripes: tuple[Group, ...]
    """The packed unit, first of all, and those that pack the members with it: query here, and key with value there.

    Units of one stripe hold rows one behind the other. What further stripes give is added to that: they hold further
    columns of the members. So are a cell's maps of its input and of its state, where each gate is one layer on both.
    """
    members: Group
    ours: bool
    """Whether the packed unit is the reference's."""
    ways: Sequence[HeldUnit] = ()
    """The layers as which the packed unit may be taken, where that is not itself."""
    along: int = 0
    """The axis along which the members are joined: 0 where they take the same, 1 where they add up to what it gives.

    That of a convolution's kernel where they also take the same, each at another place.
    """
    layers: bool = True
    """Whether it packs layers, and not parameters that no layer's rule speaks of: these say nothing of modules."""
    places: bool = False
    """Whether each member is at a place of the packed one's first axis (`[2, in, out]`: a gate, and what it gates)."""
    behind: tuple[tuple[HeldUnit, Group], ...] = ()
    """A unit that takes the packed one's channels by themselves, and those that take its members': norms."""
    wanting: tuple[int, ...] = ()
    """The shape of the part of a bias that goes with a member that holds nothing: code has zeros there.

    Where no way is right the likeliest stays: such a part that counts for something would stand for the fault.
    """
    rows: bool = False
    """Whether it packs single roles, each lying as its rows do: no layout of theirs is open."""
    lies: Mapping[HeldUnit, HeldUnit] = attrs.field(factory=dict)
    """A unit that no rule speaks of -> the layer as which it is taken."""

    @property
    def packed(self) -> HeldUnit:
        """Return the packed unit, or the first of several."""
        return self.stripes[0][0]

    @property
    def of_tables(self) -> bool:
        """Return whether it is a table that holds others, row behind row: one of them has other indices."""
        return self.packed.kind == TABLE and not self.along

    @property
    def together(self) -> Group:
        """Return the packed unit and all that packs the members with it."""
        return tuple(itertools.chain(*self.stripes))

    @property
    def of_layers(self) -> bool:
        """Return whether it packs layers, or is one itself, whose roles it packs: calls of these belong together."""
        return self.layers or (self.rows and len({one.module.path for one in self.members}) == 1)

    @property
    def repeated(self) -> object:
        """Return what repeated layers that pack others have in common: those of other shapes are no repetition.

        A number that is a part of a name (`block0`) tells one of them where the members are called alike but for their
        own numbers. It tells nothing where it is in the members' names as well: then it belongs to the layer's name.
        """
        if self.rows:  # one code cuts them, however large they are
            roles = [one.name for one in self.members]
            return self.packed.module.class_name, unnumbered(self.packed.name), *roles, self.ours
        inside = {*_INSIDE.findall(self.packed.path)}
        paths = [one.path for one in self.members if inside]
        both = inside.intersection(itertools.chain(*map(_INSIDE.findall, paths)))
        names = [unnumbered(path) for path in (self.packed.path, *paths)]
        return *names, *sorted(both), self.ours, tuple(map(self.shape_of, self.members))

    @property
    def units(self) -> Group:
        """Return all units of both sides that it is about."""
        behind = (unit for packed, members in self.behind for unit in (packed, *members))
        return (*self.together, *self.members, *behind)

    def layer(self, unit: HeldUnit, way: int = 0) -> HeldUnit:
        """Return a unit as the layer that it is taken for."""
        return self.ways[way] if self.ways and unit is self.packed else self.lies.get(unit, unit)

    def shape_of(self, unit: HeldUnit) -> tuple[int, ...]:
        """Return the shape of what a unit holds, as the layer that it is taken for."""
        held = self.layer(unit).roles.get("weight")
        return self.wanting if held is None else held.shape

    def arrangements(self) -> Iterator[Arrangement]:
        """Yield every way to pack the members: the likeliest first, and last those in groups."""
        straight, *others = self._orders()
        divisor = math.gcd(*self._sizes()) if self.along == 0 and self.layers else 1
        grouped = [n for n in range(2, divisor + 1) if divisor % n == 0]
        plain = (Arrangement(order) for order in (straight, *others))
        alike = (Arrangement(straight, groups) for groups in grouped)
        rest = (Arrangement(order, groups) for groups in grouped for order in others)
        ways = [range(1 + self._turns), range(len(self.ways) or 1), range(len(self._orders_of_columns))]
        orders = (*plain, *alike, *rest)
        lie = [*itertools.product(*ways)]
        every = ((one, how) for how in lie for one in orders) if self.rows else itertools.product(orders, lie)
        for one, (turned, way, columns) in every:
            yield attrs.evolve(one, turned=bool(turned), way=way, columns=columns)

    def exchanges(self, arrangement: Arrangement) -> Iterator[Arrangement]:
        """Yield the ways to pack the members in which two of them change places; two roles do so in all layers."""
        orders = exchanged_roles if self.rows else exchanged
        for order in orders(arrangement.order, [self.members[band[0]] for band in self._bands]):
            other = attrs.evolve(arrangement, order=order)
            if all(self._rows(other, wholes) for wholes in self._wholes()):
                yield other

    def matches(self, arrangement: Arrangement) -> tuple[UnitMatch, ...]:
        """Return what belongs together under one way of packing, member by member."""
        lie = [sorted(self._rows(arrangement, wholes)) for wholes in self._wholes()]
        found: list[UnitMatch] = []
        for place in range(len(self.packed.units)):
            stripes = [
                [(unit.units[place], self.layer(unit, arrangement.way).units[place].roles) for unit in stripe]
                for stripe in self.stripes
            ]
            members = [self.layer(one.units[place]) for one in self.members]
            members = [one.turned for one in members] if arrangement.turned else members
            pieces: list[list[_Piece]] = []
            for bands in zip(*lie, strict=True):
                band = [members[i] for i in self._bands[bands[0][0]]]
                holders = [(*stripe[whole], rows) for stripe, (_, whole, rows) in zip(stripes, bands, strict=True)]
                pieces.append(list(self._pieces(holders, band, self._orders_of_columns[arrangement.columns])))
            added = [[*itertools.chain(*pieces)]] if self.along else pieces
            found += [self._match(*both) for some in added for both in _with_biases(some)]
        for unit, others in self.behind:
            cuts = ((self._cut(unit, unit.roles, others[member], rows), others[member]) for member, _, rows in lie[0])
            found += [self._match(piece, member) for piece, member in cuts]
        return tuple(found)

    @cached_property
    def _turns(self) -> bool:
        """Return whether nothing tells which way the members lie, or what is at a place: square matrices."""
        members = [self.layer(one) for one in self.members]
        shapes = [self.shape_of(one) for one in self.members]
        square = [len(shape) == len({*shape}) + 1 == 2 for shape in shapes]
        return all(one.turns for one in members) or (self.places and all(square))

    def _pieces(
        self, holders: Sequence[_Holder], band: Sequence[HeldUnit], orders: Sequence[Sequence[int]]
    ) -> Iterator[_Piece]:
        """Yield the pieces of packed units, and of the members in their rows, that hold the same columns."""
        inside = [place for place in orders[1] if place < len(band)]
        if len(holders) == len(band):
            for (unit, roles, rows), place in zip(holders, inside, strict=True):
                yield self._cut(unit, roles, band[place], rows), band[place]
            return
        stop = 0
        for place in inside if len(holders) == 1 else orders[0]:
            unit, roles, rows = holders[place if len(holders) > 1 else 0]
            member = band[0 if len(holders) > 1 else place]
            start, stop = stop, stop + min(one["weight"].shape[1] for one in (roles, member.roles))
            if len(holders) == 1:
                yield self._cut(unit, roles, member, rows, (start, stop)), member
            else:
                yield self._cut(unit, roles, member, rows), _columns_of(member, start, stop)

    @cached_property
    def _widths(self) -> list[int]:
        """Return how many columns each stripe of packed units has."""
        return [self.shape_of(stripe[0])[1] for stripe in self.stripes]

    @cached_property
    def _bands(self) -> list[list[int]]:
        """Return which members hold the same rows: each by itself, or several that are added up."""
        bands: list[list[int]] = []
        filled = 0
        for place, member in enumerate(self.members):
            if self.along or not self.layers or self.places or not filled:
                bands.append([place])
            else:
                bands[-1].append(place)
            if self.layers and not (self.along or self.places):
                filled = (filled + self.shape_of(member)[1]) % sum(self._widths)
        return bands

    @cached_property
    def _orders_of_columns(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return in which orders a member may hold the stripes' columns, and those of a band the packed ones'."""
        several = [[self.shape_of(self.members[i])[1] for i in band] for band in self._bands if len(band) > 1]
        inside = beside_each_other(max(map(len, several), default=1))
        if len(self.stripes) == 1:
            return [((0,), one) for one in inside]
        fits = [one for one in inside if all([band[i] for i in one] == self._widths for band in several)]
        across = beside_each_other(len(self._widths))[: None if len(several) < len(self._bands) else 1]
        return list(itertools.product(across, fits if several else inside))

    @property
    def fits(self) -> bool:
        """Return whether its members fill the packed layers, in some order."""
        filled = all(sum(self._sizes()) == sum(wholes) for wholes in self._wholes())
        return filled and next(self._orders(), None) is not None

    def _orders(self) -> Iterator[tuple[int, ...]]:
        """Yield the orders of members that fill the packed layers, the likeliest first."""
        orders = orders_of_roles if self.rows else orders_of
        for order in dict.fromkeys(orders([self.members[band[0]] for band in self._bands])):
            if all(self._rows(Arrangement(order), wholes) for wholes in self._wholes()):
                yield order

    def _rows(self, arrangement: Arrangement, wholes: Sequence[int]) -> list[Rows]:
        """Return where each band lies in the units of a stripe, nothing where they do not fit.

        Which of these comes first is one stripe's business: the others follow.
        """
        ways = beside_each_other(len(wholes))[: None if len(self.stripes) > 1 else 1]
        for way in ways:
            lie = [*arrangement.rows(self._sizes(), [wholes[place] for place in way])]
            if len(lie) == len(self._bands):
                return [(band, way[place], rows) for band, place, rows in lie]
        return []

    def named(self, arrangement: Arrangement) -> str:
        """Return one way of packing in words."""
        _, inside = self._orders_of_columns[arrangement.columns]
        bands = [self._bands[i] for i in arrangement.order]
        lie = ([self.members[band[i]] for i in inside if i < len(band)] for band in bands)
        path = last if self.of_layers or not self.rows else str
        called = [" beside ".join(path(one.path) if one.roles else "nothing" for one in some) for some in lie]
        names = ", ".join(called if len(called) <= _MOST_NAMED else [*called[: _MOST_NAMED - 2], "...", called[-1]])
        groups = f" in {arrangement.groups} groups" if arrangement.groups > 1 else ""
        groups += ", each at a place of its first axis" if self.places else ""
        joined = ("", ", by columns")[self.along] if self.along < 2 else ", one for each place of its kernel"
        return f"packs {names}{groups}{joined}"

    def _sizes(self) -> list[int]:
        """Return the rows of each band."""
        firsts = (self.members[band[0]] for band in self._bands)
        if self.places:
            return [1] * len(self.members)
        return [extent(self.shape_of(unit), self.shape_of(self.packed), self.along) for unit in firsts]

    def _wholes(self) -> list[list[int]]:
        """Return the rows of the packed units of each stripe."""
        return [[self.shape_of(unit)[self.along] for unit in stripe] for stripe in self.stripes]

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
        if self.places:
            cut = {role: held.lying(at=(rows[0][0],)) for role, held in roles.items()}
            return HeldUnit(unit.module, last(member.path), None, cut, unit.settings)
        for role, held in roles.items():
            whole = self.along and len(held.shape) < 2
            if whole and role in member.roles:
                cut[role] = held
            elif role in member.roles or not (self.along or columns):
                where = {"columns": columns} if columns and len(held.shape) > 1 else {}
                cut[role] = held.lying(rows=rows, along=self.along, **where)
        name = last(member.path)
        kind = unit.kind or (LINEAR if self.layers else None)
        return HeldUnit(unit.module, name, kind, cut, unit.settings)

    def _match(self, piece: HeldUnit, member: HeldUnit) -> UnitMatch:
        if not member.roles:
            piece = attrs.evolve(piece, roles={"bias": piece.roles["weight"]})
        match = UnitMatch.of(*(piece, member)[:: 1 if self.ours else -1])
        if not (self._turns or self.rows):
            return match
        return attrs.evolve(match, links=[attrs.evolve(x, layouts=()) for x in match.links])  # tried for all alike


def _columns_of(unit: HeldUnit, start: int, stop: int) -> HeldUnit:
    """Return the piece of a layer that takes some of its columns; its bias counts in the sum of all."""
    weight = unit.roles["weight"].lying(columns=(start, stop))
    return attrs.evolve(unit, roles={**unit.roles, "weight": weight}, stack=())


def _with_biases(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Return what is added up with each side's biases at one piece, where both have any.

    Where all pieces of both sides have biases of their own each belongs to the one beside it.
    """
    if len(pieces) == 1:
        return list(pieces)
    sides = list(zip(*pieces, strict=True))
    own = [{_place(held): held for unit in side if (held := unit.roles.get("bias"))} for side in sides]
    if [*map(len, own)] == [len(pieces)] * 2:
        return list(pieces)
    at = next((i for i, both in enumerate(pieces) if all("bias" in unit.roles for unit in both)), 0)
    sums = [[held for one in some.values() for held in (one, *one.added)] for some in own]
    biases = [{"bias": attrs.evolve(some[0], added=tuple(some[1:]))} if some else {} for some in sums]
    return [
        (_with_bias(one, biases[0] if i == at else {}), _with_bias(other, biases[1] if i == at else {}))
        for i, (one, other) in enumerate(pieces)
    ]


def _place(held: Held) -> object:
    return held.parameter.path, held.part


def _with_bias(unit: HeldUnit, bias: Mapping[str, Held]) -> HeldUnit:
    return attrs.evolve(unit, roles={**{role: held for role, held in unit.roles.items() if role != "bias"}, **bias})
