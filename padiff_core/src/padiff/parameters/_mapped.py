"""Match single parameters and packed layers as a mapping file says, whatever the dataflow or names say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from padiff.alignment import MappedParameter, Resolved
from padiff.errors import MappingError
from padiff.grouping import grouped
from padiff.parameters._arrangements import Arrangement
from padiff.parameters._groups import is_map
from padiff.parameters._links import Link
from padiff.parameters._packers import packs
from padiff.parameters._packing import Packing
from padiff.parameters._roles import UnitMatch, link_roles, ways_between
from padiff.parameters._units import Held, HeldUnit, Units

End = tuple[HeldUnit, str, Held]
"""A parameter: its unit, its role there, where it lies."""


def mapped_packings(ours: Units, theirs: Units, fixed: Resolved) -> Iterator[tuple[Packing, Arrangement | None]]:
    """Yield the packed layers of a mapping file, each with how it holds its members where that is said too.

    What is mapped to several and is no packed linear layer is no packing: its parts find their counterparts below.
    """
    sides = [grouped(units, lambda unit: unit.module.path) for units in (ours, theirs)]
    for group in fixed.groups:
        tops = group.reference, group.candidate
        found = [
            [unit for path in paths for unit in units.get(path, ())] for units, paths in zip(sides, tops, strict=True)
        ]
        few, many = sorted(found, key=len)
        if len(few) != 1 or len(many) < 2 or not all(map(is_map, (*few, *many))) or not packs(few[0], many):
            continue
        order = tuple(range(len(many)))
        arrangement = None if group.groups is None else Arrangement(order, group.groups)
        yield Packing((tuple(few),), tuple(many), few is found[0]), arrangement


def with_mapped_parameters(
    matches: Sequence[UnitMatch], ours: Units, theirs: Units, fixed: Resolved
) -> list[UnitMatch]:
    """Return the matches with the mapped parameters linked as the file says, and with nothing else."""
    if not fixed.parameters:
        return list(matches)
    held = _held(ours), _held(theirs)
    mapped: list[tuple[End, End, Link]] = []
    for path, other in fixed.parameters.items():
        ends = [(side, name, side.get(name)) for side, name in zip(held, (path, other.path), strict=True)]
        for _, name, found in ends:
            if found is None:
                msg = (
                    f"{other.place}: {name!r} is no parameter that is copied by itself: it is packed with others, or a "
                    "buffer that training does not change.\nHint: name the modules, and leave this line out."
                )
                raise MappingError(msg)
        one, two = (found for _, _, found in ends if found is not None)
        link = _link(one, two, other)
        mapped.append((one, two, link))
    taken = {end[2] for one, two, _ in mapped for end in (one, two)}
    left = [
        attrs.evolve(match, links=[x for x in match.links if not {*x.references, x.candidate} & taken])
        for match in matches
    ]
    for one, two, link in mapped:
        home = next((i for i, m in enumerate(left) if m.reference is one[0] and m.candidate is two[0]), None)
        if home is None:
            left.append(UnitMatch(one[0].piece(one[1]), two[0].piece(two[1]), [link]))
        else:
            left[home] = attrs.evolve(left[home], links=[*left[home].links, link])
    return left


def _held(units: Units) -> dict[str, End]:
    """Return each whole parameter by every path that it has, with its unit and role there."""
    return {
        path: (unit, role, held)
        for unit in units
        for role, held in unit.roles.items()
        if not held.part.partial
        for path in held.parameter.paths
    }


def _link(one: End, two: End, mapped: MappedParameter) -> Link:
    """Return the link of two parameters; raise `MappingError` where one does not fit into the other."""
    role, a, b = one[1], one[2], two[2]
    alone = [HeldUnit(unit.module, "", None, {"": part}) for unit, _, part in (one, two)]
    links = link_roles(*alone)[1]
    if mapped.transposed is not None:
        ways = (attrs.evolve(way, layouts=()) for way in ways_between(role, a, b))
        links = [way for way in ways if way.transposed is mapped.transposed]
    if not links:
        laid_out = ", transposed," if mapped.transposed else ""
        msg = (
            f"{mapped.place}: {a.parameter.path!r} {list(a.shape)}{laid_out} is mapped to {b.parameter.path!r} "
            f"{list(b.shape)}: these shapes do not fit.\nHint: only axes of length one may differ; "
            "{to: name, layout: transposed} says that a matrix lies the other way."
        )
        raise MappingError(msg)
    return attrs.evolve(links[0], role=role, mapped=True)
