"""Match a packed layer with the layers that it packs: one linear that gives q, k and v against three.

A packed layer, linear or a convolution, computes several maps of one input. So its counterparts are found by
structure: they stand side by side, take the same tensor, and their outputs together are as wide. In which order it
packs them, and whether head by head, no shape tells: forcing settles it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import gcd

import attrs

from padiff.kinds import PRODUCTS, interleaved
from padiff.parameters._graph import Graph
from padiff.parameters._roles import UnitMatch, link_roles
from padiff.parameters._units import Held, HeldUnit
from padiff.trace import settings_of

_LINEAR = "linear"


@attrs.frozen
class Arrangement:
    """Say how a packed layer holds its members: in which order, in how many groups (heads) of all of them."""

    order: tuple[int, ...]
    groups: int = 1

    def rows(self, sizes: Sequence[int]) -> list[tuple[tuple[int, int], ...]]:
        """Return, for each member, the ranges of its rows in the packed layer; ``sizes`` are the members' rows."""
        lie = interleaved([sizes[member] // self.groups for member in self.order], self.groups)
        return [lie[self.order.index(member)] for member in range(len(sizes))]


@attrs.frozen(eq=False)
class Packing:
    """A packed unit of one side and the units of the other that it packs, in execution order."""

    packed: HeldUnit
    members: tuple[HeldUnit, ...]
    ours: bool
    """Whether the packed unit is the reference's."""
    roles: Mapping[str, Held]
    """Where its weight and bias lie, as those of a linear layer."""

    def arrangements(self) -> Iterator[Arrangement]:
        """Yield every way to pack the members: the likeliest first, and last those in groups."""
        straight, *others = itertools.permutations(range(len(self.members)))
        divisor = gcd(*self._sizes())
        grouped = [n for n in range(2, divisor) if divisor % n == 0]
        yield from (Arrangement(order) for order in (straight, *others))
        yield from (Arrangement(straight, groups) for groups in grouped)
        yield from (Arrangement(order, groups) for groups in grouped for order in others)

    def matches(self, arrangement: Arrangement) -> tuple[UnitMatch, ...]:
        """Return what belongs together under one way of packing, member by member."""
        names = (member.path.rpartition(".")[2] for member in self.members)
        pieces = (
            HeldUnit(
                self.packed.module, name, self.packed.kind or _LINEAR, self._cut(member, rows), self.packed.settings
            )
            for name, member, rows in zip(names, self.members, arrangement.rows(self._sizes()), strict=True)
        )
        return tuple(self._match(piece, member) for piece, member in zip(pieces, self.members, strict=True))

    def named(self, arrangement: Arrangement) -> str:
        """Return one way of packing in words."""
        names = ", ".join(self.members[i].path.rpartition(".")[2] for i in arrangement.order)
        return f"packs {names}" + (f" in {arrangement.groups} groups" if arrangement.groups > 1 else "")

    def _sizes(self) -> list[int]:
        return [unit.roles["weight"].shape[0] for unit in self.members]

    def _cut(self, member: HeldUnit, rows: tuple[tuple[int, int], ...]) -> dict[str, Held]:
        return {
            role: Held(
                held.parameter, attrs.evolve(held.part, rows=rows), (member.roles[role].shape[0], *held.shape[1:])
            )
            for role, held in self.roles.items()
            if role in member.roles
        }

    def _match(self, piece: HeldUnit, member: HeldUnit) -> UnitMatch:
        reference, candidate = (piece, member) if self.ours else (member, piece)
        return UnitMatch(reference, candidate, link_roles(reference, candidate)[1])


def find_packings(graphs: tuple[Graph, Graph], unmatched: set[HeldUnit]) -> list[Packing]:
    """Return the packed units of either side with what they pack, each unit in one packing at most.

    ``graphs`` are those of reference and candidate; ``unmatched`` the units that found no counterpart of their own
    shape.
    """
    found: list[Packing] = []
    for mine, yours, ours in ((graphs[0], graphs[1], True), (graphs[1], graphs[0], False)):
        groups = list(_side_by_side(yours))
        for unit in mine.units:
            ways = list(_as_maps(unit)) if unit in unmatched else []
            fits = ((way, g) for g in groups if any(u in unmatched for u in g) for way in ways if _packs(way, g))
            way, fit = next(fits, (None, ()))
            if way is not None:
                groups.remove(fit)
                found.append(Packing(unit, fit, ours, way.roles))
    return found


def _as_maps(unit: HeldUnit) -> Iterator[HeldUnit]:
    """Yield a unit as the maps of one input that it is; of a matrix that no rule speaks of, either way it may lie."""
    if _is_map(unit):
        yield unit
    matrices = [held for held in unit.roles.values() if len(held.shape) == 2]
    vectors = [held for held in unit.roles.values() if len(held.shape) == 1]
    if unit.kind is not None or unit.special is not None or len(matrices) != 1:
        return
    if len(vectors) > 1 or len(unit.roles) > 1 + len(vectors):
        return
    (matrix,) = matrices
    for transpose in (None, (1, 0)):
        shape = matrix.shape if transpose is None else matrix.shape[::-1]
        weight = Held(matrix.parameter, attrs.evolve(matrix.part, transpose=transpose), shape)
        if all(held.shape == shape[:1] for held in vectors):
            roles = dict(zip(("weight", "bias"), (weight, *vectors), strict=False))
            yield attrs.evolve(unit, kind=_LINEAR, roles=roles)


def _is_map(unit: HeldUnit) -> bool:
    """Return whether each row of the weight is a map of all input channels by itself."""
    return unit.kind in PRODUCTS and "weight" in unit.roles and settings_of(unit).get("groups", 1) == 1


def _packs(unit: HeldUnit, members: Sequence[HeldUnit]) -> bool:
    weight = unit.roles["weight"].shape
    shapes = [member.roles["weight"].shape for member in members]
    return all(_map(shape) == _map(weight) for shape in shapes) and sum(shape[0] for shape in shapes) == weight[0]


def _map(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one row; a kernel of one element is none."""
    return tuple(shape[1:2]) if set(shape[2:]) <= {1} else tuple(shape[1:])


def _side_by_side(graph: Graph) -> Iterator[tuple[HeldUnit, ...]]:
    """Yield the linear maps of one parent, or of one attention, that take the same values, in execution order."""
    groups: dict[tuple[str, frozenset[int]], list[HeldUnit]] = {}
    for unit, takes in zip(graph.units, graph.takes, strict=False):
        if _is_map(unit) and takes:
            parent = unit.module.path if unit.name else unit.module.path.rpartition(".")[0]
            groups.setdefault((parent, frozenset(takes)), []).append(unit)
    return (tuple(group) for group in groups.values() if len(group) > 1)
