"""Find which layers of one model pack which of the other: side by side, added up, or both; and norms behind them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial

import attrs

from padiff.parameters._graph import Graph
from padiff.parameters._groups import (
    TABLE,
    Group,
    added_up,
    as_maps,
    bands,
    giving_alike,
    is_list,
    is_map,
    keys_and_values,
    of_one_parent,
    row_of,
    side_by_side,
    stripes,
    tables,
    takes_channels_apart,
)
from padiff.parameters._packing import Packing
from padiff.parameters._shapes import bare
from padiff.parameters._splitting import used_as
from padiff.parameters._units import HeldUnit
from padiff.trace import settings_of

_MOST_WAYS = 64
"""Ways in which matrices that no rule speaks of are taken for layers."""


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
    as_wide, at_places = partial(_as_wide, freed=freed), partial(_at_places, known=known, freed=freed)
    for fitting in (_cut_both_ways, as_wide, _shared, at_places, _as_the_rest, _whatever_they_take):
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
            found = packing_of((unit,), group, ours, along)
            if found is not None:
                yield found
            elif along and _taps(unit, group):
                yield Packing(((unit,),), group, ours, along=_kernel_axis(unit))


def _cut_both_ways(
    mine: Graph, yours: Graph, ours: bool, unmatched: Set[HeldUnit], taken: Set[HeldUnit]
) -> Iterator[Packing]:
    """Yield units with layers that together hold the same rows and columns, where these are cut along both axes.

    All gates on all that they take, against one for each gate and each of that; a cell's maps of its input and of its
    state, against one layer on both for each gate.
    """
    free = unmatched - taken
    for packed, members in itertools.product(stripes(mine, free), bands(yours, free)):
        ways = itertools.product(*(as_maps(unit) for unit in (*packed, *members)))
        fits = (_in_stripes(packed, members, way, ours) for way in itertools.islice(ways, _MOST_WAYS))
        found = next((one for one in fits if one is not None), None)
        if found is not None:
            yield found


def _in_stripes(packed: Group, members: Group, layers: Group, ours: bool) -> Packing | None:
    """Return the packing of units, given as layers, in stripes of all rows and bands of all columns; None without."""
    if not all(map(is_map, layers)) or len({unit.roles["weight"].shape[2:] for unit in layers}) > 1:
        return None
    few, many = layers[: len(packed)], layers[len(packed) :]
    width = max(_sides(unit)[1] for unit in layers)
    across = _filled(many, width, 1)
    height = sum(_sides(band[0])[0] for band in across)
    along = _filled(few, height, 0)
    whole = all(_extent(band, 1) == width for band in across) and sum(_sides(one[0])[1] for one in along) == width
    counts = {len(band) for band in across}
    cut = len(across) > 1 and counts != {len(along)} and (len(along) == 1 or counts <= {1, len(along)})
    if not (whole and cut and all(_extent(stripe, 0) == height for stripe in along)):
        return None
    units = dict(zip(layers, (*packed, *members), strict=True))
    found = Packing(
        tuple(tuple(units[one] for one in stripe) for stripe in along),
        tuple(units[one] for band in across for one in band),
        ours,
        lies={unit: one for one, unit in units.items() if one is not unit},
    )
    return found if found.fits else None


def _filled(units: Group, whole: int, axis: int) -> list[list[HeldUnit]]:
    """Return units in groups that fill a whole along an axis, one behind the other, each as long the other way."""
    found: list[list[HeldUnit]] = []
    for unit in units:
        size, other = _sides(unit)[axis], _sides(unit)[1 - axis]
        room = (some for some in found if _sides(some[0])[1 - axis] == other and _extent(some, axis) + size <= whole)
        some = next(room, None)
        if some is None:
            found.append([unit])
        else:
            some.append(unit)
    return found


def _extent(units: Sequence[HeldUnit], axis: int) -> int:
    return sum(_sides(unit)[axis] for unit in units)


def _sides(unit: HeldUnit) -> tuple[int, int]:
    rows, columns = unit.roles["weight"].shape[:2]
    return rows, columns


def _shared(mine: Graph, yours: Graph, ours: bool, unmatched: Set[HeldUnit], taken: Set[HeldUnit]) -> Iterator[Packing]:
    """Yield what several layers pack together: all that take one value, against more that do on the other side."""
    few, many = (
        [one for one in _beside(graph, unmatched - taken) if taken.isdisjoint(one) and not unmatched.isdisjoint(one)]
        for graph in (mine, yours)
    )
    for packed, members in itertools.product(few, many):
        found = packing_of(packed, members, ours)
        if found is not None:
            yield found


def _as_the_rest(
    mine: Graph, yours: Graph, ours: bool, unmatched: Set[HeldUnit], taken: Set[HeldUnit]
) -> Iterator[Packing]:
    """Yield units as wide as the layers without counterpart that take the same, beside others that have one."""
    free = unmatched - taken
    groups = [group for group in _beside(yours, free) if free >= {*group}]
    for unit, group in itertools.product((one for one in mine.units if one in free), groups):
        found = packing_of((unit,), group, ours)
        if found is not None:
            yield found


def _at_places(
    mine: Graph,
    yours: Graph,
    ours: bool,
    unmatched: Set[HeldUnit],
    taken: Set[HeldUnit],
    *,
    known: Mapping[int, int],
    freed: bool,
) -> Iterator[Packing]:
    """Yield parameters that hold, each at a place of their first axis, layers of one shape.

    These take the same, or else are no list, and give to the same or are all that one parent has without counterpart.
    One that takes more than these do holds the same layer of several blocks, of which there are as many. And what code
    uses as maps of few to many holds no maps of many to few.
    """
    free = unmatched - taken
    apart = (one for one in (*giving_alike(yours, free), *of_one_parent(yours, free)) if not is_list(one))
    groups = itertools.chain(side_by_side(yours), apart)
    alike = [one for one in groups if taken.isdisjoint(one) and len({*map(_shapes, one)}) == 1]
    alike = [one for one in alike if free >= {*one} or (freed and not free.isdisjoint(one))]
    theirs = known if ours else {other: one for one, other in known.items()}
    for place, unit in enumerate(mine.units if alike else ()):
        held = sorted(unit.roles.values(), key=lambda one: -len(bare(one.shape)))
        if unit in free and unit.loose and all(len(one.shape) > 1 for one in held):
            whole = attrs.evolve(unit, roles=dict(zip(("weight", "bias"), held, strict=False)))
            at = [(one.shape[0], sorted(bare(one.shape[1:]))) for one in held]
            told = {theirs[node] for node in mine.takes[place] if node in theirs}
            for group in alike:
                takes = {node for one in group for node in yours.takes[yours.units.index(one)]}
                several = len(mine.takes[place]) >= 2 * len(takes) and 2 * len(told - takes) >= len(told) > 0
                fits = at == [(len(group), sorted(shape)) for shape in _shapes(group[0])]
                if fits and not several and _used_alike(_at_first(whole), group[0], mine, yours):
                    yield Packing(((unit,),), group, ours, [whole], places=True)


def _at_first(unit: HeldUnit) -> HeldUnit:
    """Return what a unit holds at the first place of its first axis."""
    return attrs.evolve(unit, roles={role: held.lying(at=(0,)) for role, held in unit.roles.items()})


def _used_alike(one: HeldUnit, other: HeldUnit, mine: Graph, yours: Graph) -> bool:
    """Return whether the code of both sides uses two units as maps of as many to as many, as far as it is known."""
    ways = [set(map(bare, used_as(*both))) for both in ((one, mine.contracted), (other, yours.contracted))]
    return not all(ways) or not ways[0].isdisjoint(ways[1])


def _beside(graph: Graph, free: Set[HeldUnit]) -> Iterator[Group]:
    """Yield the layers that take the same, then those of them that are free: another may take it, as a gate does."""
    groups = list(side_by_side(graph))
    yield from groups
    rest = (tuple(unit for unit in group if unit in free) for group in groups)
    yield from (some for some in rest if len(some) > 1 and some not in groups)


def _shapes(unit: HeldUnit) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted((tuple(bare(one.shape)) for one in unit.roles.values()), key=lambda one: -len(one)))


def packing_of(packed: Group, members: Group, ours: bool, along: int = 0) -> Packing | None:
    """Return the packing of layers in one that is as wide, joined along an axis, or in fewer ones that they fill."""
    if not len(packed) < len(members):
        return None
    if len(packed) == 1:
        # Matrices of three axes may be a stack: queries, keys and values with their heads apart have four.
        split = max(len(held.shape) for held in packed[0].roles.values()) > 3
        ways = [way for way in as_maps(packed[0], split=split) if packs(way, members, along)]
        return Packing((packed,), members, ours, ways, along) if ways else None
    rows = {row_of(unit.roles["weight"].shape) for unit in (*packed, *members)}
    if len(rows) > 1 or any(unit.stack for unit in (*packed, *members)):
        return None
    found = Packing((packed,), members, ours)
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
            yield Packing(((unit,),), members, ours)


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
    """Return the shape of one column; a kernel of one element is none."""
    return (shape[0], *(shape[2:] if {*shape[2:]} - {1} else ()))


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
    shapes = [held.shape[:1] if takes_channels_apart(behind) else held.shape for held in behind.roles.values()]
    fits = behind.kind is not None and all(shape == channels for shape in shapes)
    return behind if fits and behind in free else None
