"""Match a parameter that packs several roles of a layer, or of many layers: scales and shifts, a weight and its bias.

No layer's rule speaks of it: code cuts it, along any axis, and gives a function the parts. What packs the roles of one
layer stands in the dataflow where that layer stands. A table for many layers is used everywhere, so it holds what is
left over of these. In which order it holds the parts no shape tells, forcing settles it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Set

import attrs

from padiff.grouping import grouped
from padiff.kinds import Part
from padiff.parameters._as_rows import as_rows
from padiff.parameters._correspondence import Correspondence, Packed
from padiff.parameters._groups import TABLE, Group
from padiff.parameters._packing import Packing
from padiff.parameters._roles import FULL, UnitMatch, link_roles
from padiff.parameters._shapes import bare, extent
from padiff.parameters._splitting import parts_of
from padiff.parameters._units import Held, HeldUnit, Units
from padiff.paths import unnumbered, upwards
from padiff.trace import Flow, called


def with_roles_apart(known: Correspondence, flows: tuple[Flow, Flow]) -> tuple[Units, Units] | None:
    """Return the units of both sides, those that pack roles of a layer without counterpart with a role for each part.

    None where none does.
    """
    if not all(known.left):
        return None
    both = zip(known.sides, known.left, strict=True)
    layers = [[one for one in _lacking(*some) if one.kind is not None] for some in both]
    ours, theirs = (
        [part for unit in known.sides[side] for part in _apart(unit, flows[side], known.left[side], layers[1 - side])]
        for side in (0, 1)
    )
    return None if [*known.reference] == ours and [*known.candidate] == theirs else (ours, theirs)


def as_packed(found: Correspondence) -> Correspondence | None:
    """Return a correspondence with roles that were cut before they were matched as what packs them, whole again.

    None where what was cut was taken for a part of something else.
    """
    every = [unit for units in found.sides for unit in units]
    cut = {unit for unit in every if any(map(_is_cut, unit.roles.values()))}
    if not cut.isdisjoint(unit for one in found.packed for unit in one.packing.units):
        return None
    matches, packed = list[UnitMatch](), list[Packed]()
    for match in found.matches:
        sides = [not side for side, unit in enumerate(match.units) if unit in cut]
        packed += [Packed.of(packing) for ours in sides for packing in _packings(match, ours=ours)]
        matches += _rest(match) if sides else [match]
    matches += [one for some in packed for one in some.matches]
    ours, theirs = ([_uncut(unit) if unit in cut else unit for unit in units] for units in found.sides)
    found = attrs.evolve(found, reference=ours, candidate=theirs)
    return attrs.evolve(found, matches=matches, packed=[*found.packed, *packed])


def with_tables(known: Correspondence, flows: tuple[Flow, Flow]) -> Correspondence:
    """Return the correspondence with tables of one side as what they pack: roles of layers without counterpart.

    Those are all below one module: of one kind, or called alike but for numbers, and in execution order. Several
    tables of one module may hold them together: one the scales, and one the shifts.
    """
    for mine, yours in ((0, 1), (1, 0)):
        left = known.left
        tables = [one for unit in known.sides[mine] for one in _loose(unit, left[mine])]
        layers = [*_lacking(known.sides[yours], left[yours])] if tables else []
        pieces = [layer.piece(role) for layer in _in_order(layers, flows[yours]) for role in layer.roles]
        packed = [Packed.of(one) for one in _filled(tables, pieces, ours=not mine)]
        matches = [*known.matches, *(match for one in packed for match in one.matches)]
        known = attrs.evolve(known, matches=matches, packed=[*known.packed, *packed])
    return known


def _lacking(units: Units, left: Set[str]) -> Iterator[HeldUnit]:
    """Yield the units of one side of which roles have no counterpart, with these alone."""
    for unit in units:
        roles = {role: held for role, held in unit.roles.items() if held.parameter.path in left}
        roles = {role: held for role, held in roles.items() if not held.part.partial}
        if roles and not unit.stack and unit.special is None:
            yield attrs.evolve(unit, roles=roles)


def _loose(unit: HeldUnit, left: Set[str]) -> Iterator[HeldUnit]:
    """Yield a unit of each parameter without counterpart that no layer's rule speaks of, and that of a table."""
    if unit.loose or (unit.kind == TABLE and not unit.stack):
        for role, held in unit.roles.items():
            if held.parameter.path in left and held.part.permuted and held.part.transpose is None:
                yield HeldUnit(unit.module, role, None, {"weight": held}, unit.settings)


def _apart(unit: HeldUnit, flow: Flow, left: Set[str], layers: Units) -> Iterator[HeldUnit]:
    """Yield a unit, or the parts that it is to the dataflow, with a role for each part of what packs a layer's."""
    if not unit.loose or unit.special is not None or unit.paths.isdisjoint(left) or not layers:
        yield unit
        return
    cut = _as_one_of(layers, unit, left)
    parts = [(cut or part, _as_one_of(layers, part, left)) for part in ((unit,) if cut else parts_of(unit, flow))]
    yield from [other or part for part, other in parts] if any(other for _, other in parts) else [unit]


def _as_one_of(layers: Units, unit: HeldUnit, left: Set[str]) -> HeldUnit | None:
    """Return a unit with what packs several roles cut, as one of some layers that holds the same; None if none does."""
    for layer in layers:
        wanted, roles, wholes = dict(layer.roles), dict[str, Held](), list[Held]()
        for held in unit.roles.values():
            same = (role for role, other in wanted.items() if _looks(held) == _looks(other))
            role = next(same, None)
            if role is None:
                wholes.append(held)
            else:
                del wanted[role]
                roles[role] = held
        for whole in wholes:
            some = {role: held for role, held in wanted.items() if held.parameter.buffer == whole.parameter.buffer}
            if len(some) > 1 and whole.parameter.path in left and whole.part.permuted:
                roles |= _cut(whole, some)
        kinds = {whole.parameter.buffer for whole in wholes}  # one packs what is trained, one what is not
        if len(wholes) == len(kinds) > 0 and roles.keys() == layer.roles.keys():
            cut = attrs.evolve(unit, kind=layer.kind, roles={role: roles[role] for role in layer.roles})
            if link_roles(layer, cut)[0] >= FULL:
                return cut
    return None


def _cut(whole: Held, parts: Mapping[str, Held]) -> dict[str, Held]:
    """Return a parameter's pieces that hold some roles, each in the shape that these have; none if it does not."""
    lie = as_rows([whole], [*parts.values()])
    if lie is None:
        return {}
    ((lying, *_),), rows = lie
    sizes = [extent(row.shape, lying.shape) for row in rows]
    starts = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    pieces = (lying.lying(rows=(place,)) for place in starts)
    return {role: attrs.evolve(one, shape=parts[role].shape) for role, one in zip(parts, pieces, strict=True)}


def _looks(held: Held) -> object:
    return sorted(bare(held.shape)), held.parameter.buffer


def _is_cut(held: Held) -> bool:
    return held.part.rows is not None


def _uncut(unit: HeldUnit) -> HeldUnit:
    """Return a unit of which some roles were cut as it was before."""
    roles = {held.part.parameter: _whole(held) if _is_cut(held) else held for held in unit.roles.values()}
    return attrs.evolve(unit, kind=None, roles=roles)


def _whole(held: Held) -> Held:
    part = Part(held.part.parameter)
    return Held(held.parameter, part, part.shape(held.parameter.shape))


def _packings(match: UnitMatch, *, ours: bool) -> Iterator[Packing]:
    """Yield what packs roles that were cut, of one side's unit in a match."""
    unit, layer = match.units[:: 1 if ours else -1]
    cut = {role: held for role, held in unit.roles.items() if _is_cut(held) and role in layer.roles}
    for some in grouped(cut, lambda role: cut[role].parameter.path).values():
        whole = _whole(cut[some[0]])
        packed = HeldUnit(unit.module, whole.part.parameter, None, {"weight": whole}, unit.settings)
        packing = _packing_of((packed,), [layer.piece(role) for role in some], ours=ours)
        if packing is not None:
            yield packing


def _rest(match: UnitMatch) -> Iterator[UnitMatch]:
    """Yield a match without what was cut: a norm's statistics."""
    links = [link for link in match.links if not any(map(_is_cut, link.ends))]
    held = {one for link in links for one in link.ends}
    if links:
        ours, theirs = (
            attrs.evolve(unit, kind=kind, roles={role: one for role, one in unit.roles.items() if one in held})
            for unit in match.units
            for kind in [None if any(map(_is_cut, unit.roles.values())) else unit.kind]
        )
        yield UnitMatch(ours, theirs, links)


def _packing_of(packed: Group, pieces: Units, *, ours: bool) -> Packing | None:
    """Return the packing of single roles in parameters; None where these do not hold them."""
    lie = as_rows([_held(one) for one in packed], [_held(piece) for piece in pieces])
    if lie is None:
        return None
    first = [attrs.evolve(packed[0], roles={"weight": way}) for way in lie[0][0]]
    members = [attrs.evolve(piece, roles={"weight": one}) for piece, one in zip(pieces, lie[1], strict=True)]
    lies = {one: attrs.evolve(one, roles={"weight": ways[0]}) for one, ways in zip(packed, lie[0], strict=True)}
    found = Packing((packed,), tuple(members), ours, first, layers=False, lies=lies, rows=True)
    return found if found.fits else None


def _held(unit: HeldUnit) -> Held:
    (held,) = unit.roles.values()
    return held


def _in_order(units: Units, flow: Flow) -> list[HeldUnit]:
    """Return layers as the run met them first, and behind them those that it never met."""
    ranks = {key: rank for rank, key in enumerate(flow.takes)}

    def rank(unit: HeldUnit) -> int:
        return min(ranks.get(key, len(ranks)) for key in (called(unit.module.path), *unit.paths))

    return sorted(units, key=rank)


def _filled(tables: Units, pieces: Units, *, ours: bool) -> Iterator[Packing]:
    """Yield what tables pack: all that layers have first, by itself or with others of its module, then some of it."""
    free, left = [*tables], [*pieces]
    each, modules = ([(one,) for one in tables], grouped(tables, lambda unit: unit.module.path).values())
    several = [tuple(some) for some in modules if len(some) > 1]
    for packed, all_of_them in (*((one, True) for one in (*each, *several)), *((one, False) for one in each)):
        groups = _groups(left) if {*packed} <= {*free} else ()
        fitting = (some for some in groups if _are_whole(some, left) or not all_of_them)
        found = next(filter(None, (_packing_of(packed, some, ours=ours) for some in fitting)), None)
        if found is not None:
            gone = {_held(one).parameter.path for one in found.members}
            free = [one for one in free if one not in packed]
            left = [one for one in left if _held(one).parameter.path not in gone]
            yield found


def _are_whole(some: Group, every: Units) -> bool:
    """Return whether roles are all that their layers have."""
    modules = {one.module.path for one in some}
    return len(some) == sum(one.module.path in modules for one in every)


def _groups(pieces: Units) -> Iterator[Group]:
    """Yield roles that one table may pack: of what is below one module, the innermost first, all or what is alike."""
    below = grouped(((top, one) for one in pieces for top in upwards(one.module.path)), lambda both: both[0])
    alike: list[Callable[[HeldUnit], object]] = [
        lambda _: (),
        lambda one: one.module.kind,
        lambda one: unnumbered(one.module.path),
        lambda one: one.name,
        lambda one: (one.name, one.module.kind),
        lambda one: unnumbered(one.path),
    ]
    for top in sorted(below, key=lambda path: -len(path.split(".")) if path else 0):
        for way in alike:
            yield from (tuple(some) for some in grouped((one for _, one in below[top]), way).values() if len(some) > 1)
