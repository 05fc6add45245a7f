"""Say in which order, and in how many groups, packed layers may hold what they pack."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs

from padiff.grouping import grouped
from padiff.kinds import interleaved
from padiff.parameters._units import HeldUnit
from padiff.paths import parent, unnumbered

_MOST_MEMBERS = 6
"""Layers that others pack, of which every order is asked for; of more, those that names tell."""
_MOST_NAMES = 4
"""Names of layers, but for numbers, of which every order is asked for."""
Rows = tuple[int, int, tuple[tuple[int, int], ...]]


@attrs.frozen
class Arrangement:
    """Say how a packed layer holds its members: in which order, in how many groups (heads) of all of them."""

    order: tuple[int, ...]
    groups: int = 1
    way: int = 0
    """As which of the layers that it may be the packed unit is taken."""
    columns: int = 0
    """Which of the orders that columns of the members may be in."""
    turned: bool = False
    """Whether the members lie the other way round, all of them alike."""

    def rows(self, sizes: Sequence[int], wholes: Sequence[int]) -> Iterator[Rows]:
        """Yield, in order, each member, the packed layer that it is in and the ranges of its rows there.

        ``sizes`` are the members' rows, and ``wholes`` those of the packed layers; nothing comes where these do not
        fit one behind the other.
        """
        order = list(self.order)
        for place, whole in enumerate(wholes):
            inside: list[int] = []
            while order and sum(sizes[member] for member in inside) < whole:
                inside.append(order.pop(0))
            if sum(sizes[member] for member in inside) == whole:
                lie = interleaved([sizes[member] // self.groups for member in inside], self.groups)
                yield from ((member, place, rows) for member, rows in zip(inside, lie, strict=True))


def orders_of(members: Sequence[HeldUnit]) -> Iterator[tuple[int, ...]]:
    """Yield orders of members: as they run, then by name, then all of a few.

    By name, layers of one name stand together (queries of all heads), or one of each (all of a head). Of the rest those
    come first that divide few lists.
    """
    straight = tuple(range(len(members)))
    yield from dict.fromkeys((straight, *_by_name(members), *_every(members)))


def _by_name(members: Sequence[HeldUnit]) -> Iterator[tuple[int, ...]]:
    alike = grouped(range(len(members)), lambda place: unnumbered(members[place].path))
    if not 1 < len(alike) < len(members) or len(alike) > _MOST_NAMES:
        return
    names = list(itertools.permutations(alike.values()))
    yield from (tuple(itertools.chain(*order)) for order in names)
    if len({*map(len, alike.values())}) == 1:
        yield from (tuple(itertools.chain(*zip(*order, strict=True))) for order in names)


def _every(members: Sequence[HeldUnit]) -> Sequence[tuple[int, ...]]:
    lists = [parent(member.module.path) for member in members]

    def divided(order: Sequence[int]) -> int:
        return sum(a > b or lists[a] != lists[b] for a, b in itertools.pairwise(order))

    few = len(members) <= _MOST_MEMBERS
    return sorted(itertools.permutations(range(len(members))), key=divided) if few else ()
