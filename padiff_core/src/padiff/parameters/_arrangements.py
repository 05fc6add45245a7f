"""Say in which order, and in how many groups, packed layers may hold what they pack."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import attrs

from padiff.grouping import grouped
from padiff.kinds import interleaved
from padiff.parameters._units import HeldUnit
from padiff.paths import REPEATED, last, parent, unnumbered

_MOST_MEMBERS = 6
"""Layers that others pack, of which every order is asked for; of more, those that names tell."""
_MOST_ORDERS = 24
"""Orders in which members are tried beside each other: all of four."""
_FEW = 3
"""Lists of layers of which every order is asked for where roles of these are packed."""
_FEW_ROLES = 4
"""Such roles of which every order is asked for."""
_MOST_NAMES = 4
"""Names of layers, but for numbers, of which every order is asked for."""
_LISTED = re.compile(r"(?<![^.])\d+(?![^.])")
"""The number of what a list holds, in a path."""
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
    come first that divide few lists. What one code cuts for repeated blocks lies in one order for all of these.
    """
    straight = tuple(range(len(members)))
    every = (order for order in _every(members) if _is_one_for_all(order, members))
    yield from dict.fromkeys((straight, *_by_name(members), *every))


def orders_of_roles(members: Sequence[HeldUnit]) -> Iterator[tuple[int, ...]]:
    """Yield orders of single roles of layers: all of one role together or all of a layer, alike in all of these.

    The layers come as they run, and those of one list in any place among others. In a list those of one block stand
    together, or those of one name.
    """
    layers = grouped(range(len(members)), lambda place: members[place].module.path)
    lists = [*grouped(layers, lambda path: REPEATED.split(path)[0]).values()]
    named = [[*itertools.chain(*grouped(some, _unrepeated).values())] for some in lists]
    roles = grouped(range(len(members)), lambda place: members[place].name).values()
    orders = [[*itertools.chain(*one)] for order in _among_others(len(lists)) for one in _each(order, lists, named)]
    ways = [*itertools.permutations(roles)] if len(roles) <= _FEW_ROLES else [(*roles,)]
    for order, some in itertools.product(orders, ways):
        each = [[place for path in order for place in layers[path] if place in one] for one in some]
        yield tuple(itertools.chain(*each))
        if len({*map(len, each)}) == 1:
            yield tuple(itertools.chain(*zip(*each, strict=True)))


def exchanged(order: Sequence[int], members: Sequence[HeldUnit]) -> Iterator[tuple[int, ...]]:
    """Yield an order with two members in each other's place, none of one of several repeated blocks alone."""
    for a, b in itertools.combinations(order, 2):
        other = tuple({a: b, b: a}.get(place, place) for place in order)
        if _is_one_for_all(other, members):
            yield other


def exchanged_roles(order: Sequence[int], members: Sequence[HeldUnit]) -> Iterator[tuple[int, ...]]:
    """Yield an order with two roles in each other's place, in every layer that has both; few are tried anyway."""
    layers = grouped(range(len(members)), lambda place: members[place].module.path).values()
    roles = [{members[place].name: place for place in some} for some in layers]
    names = [*dict.fromkeys(one.name for one in members)]
    for one, other in itertools.combinations(names if len(names) > _FEW else (), 2):
        both = [(some[one], some[other]) for some in roles if one in some and other in some]
        turned = {a: b for pair in both for a, b in (pair, pair[::-1])}
        yield tuple(turned.get(place, place) for place in order)


def _each(order: Sequence[int], *sides: Sequence[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    yield from ([side[place] for place in order] for side in sides)


def _among_others(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the orders of so many: of few all, of more those in which one is the first, or the last."""
    straight = tuple(range(count))
    if count <= _FEW:
        yield from itertools.permutations(straight)
        return
    rest = [(one, (*straight[:one], *straight[one + 1 :])) for one in straight]
    yield from dict.fromkeys((straight, *((*some, one) for one, some in rest), *((one, *some) for one, some in rest)))


def _unrepeated(path: str) -> str:
    return REPEATED.sub("#", path)


def _blocks(members: Sequence[HeldUnit]) -> dict[str, dict[str, list[int]]]:
    """Return, by its path without numbers, the blocks of a list by their paths: the places of the members in each.

    What has a number in its own name (`branch1`) is no repetition here: such branches may lie in any order.
    """
    found = grouped(range(len(members)), lambda place: parent(members[place].path))
    alike = grouped(found, lambda path: _LISTED.sub("#", path))
    return {name: {path: found[path] for path in paths} for name, paths in alike.items()}


def _is_one_for_all(order: Sequence[int], members: Sequence[HeldUnit]) -> bool:
    """Return whether blocks come as they run, or as they are numbered, each with its members in the same order."""
    for blocks in _blocks(members).values():
        lie = {path: sorted(places, key=order.index) for path, places in blocks.items()}
        names = grouped((place for some in blocks.values() for place in some), lambda place: last(members[place].path))
        runs = (sorted(some, key=order.index) for some in names.values())
        ways = [[last(members[place].path) for place in some] for some in lie.values()]
        straight = all(
            some in (sorted(some), sorted(some, key=lambda place: _numbers(members[place]))) for some in runs
        )
        if not straight or any(way != ways[0] for way in ways if {*way} == {*ways[0]}):
            return False
    return True


def _numbers(member: HeldUnit) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", member.path)]


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


def beside_each_other(count: int) -> list[tuple[int, ...]]:
    """Return the orders in which so many may lie beside each other, the first of very many."""
    return list(itertools.islice(itertools.permutations(range(count)), _MOST_ORDERS))
