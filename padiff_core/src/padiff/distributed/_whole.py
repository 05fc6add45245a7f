"""Describe the model of which one rank holds parts as it is over all ranks, as far as its framework says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from padiff.kinds import Part, Placement, Ranks, Unit
from padiff.paths import downwards, joined, last, parent
from padiff.trace import Description, ModuleDescription, ParameterRecord

Shape = tuple[int, ...]


def whole_shape(ranks: Ranks, record: ParameterRecord) -> Shape:
    """Return the shape that a parameter has over all ranks, as far as is known."""
    if record.path in ranks.shapes:
        return ranks.shapes[record.path]
    shape = list(record.shape)
    for axis, how in ranks.parameters.get(record.path, {}).items():
        if how.kind == "shard":
            shape[how.dim] *= len(ranks.groups.get(axis, (ranks.rank,)))
    return tuple(shape)


def united(abouts: Sequence[Description]) -> Description:
    """Return one description of a model of which each rank has some modules; of what several have, the first's."""
    lead = abouts[0]
    if all(one.modules.keys() == lead.modules.keys() for one in abouts):
        return lead
    modules: dict[str, ModuleDescription] = {}
    parameters: dict[str, ParameterRecord] = {}
    told = [one.ranks for one in abouts if one.ranks is not None]
    ranks: dict[str, Any] = {"parameters": {}, "outputs": {}, "shapes": {}}
    for about in reversed(abouts):
        modules |= about.modules
        parameters |= about.parameters
    for one in reversed(told):
        for name, known in ranks.items():
            known.update(getattr(one, name))
    copies = {path for one in told for path in one.copies}
    for path in copies & parameters.keys():
        home = parent(path)
        units = modules[home].units.items()
        kept = {
            name: unit for name, unit in units if path not in {joined(home, p.parameter) for p in unit.roles.values()}
        }
        modules[home] = attrs.evolve(modules[home], units=kept)
        del parameters[path]
    order = _order([about.modules for about in abouts])
    places = {path: number for number, path in enumerate(order)}
    return attrs.evolve(
        lead,
        modules={path: modules[path] for path in order},
        parameters=dict(sorted(parameters.items(), key=lambda one: places.get(parent(one[0]), -1))),
        ranks=attrs.evolve(told[0], **ranks),
    )


def _order(modules: Sequence[Mapping[str, ModuleDescription]]) -> list[str]:
    """Return the paths of all ranks' modules, in the order of the model that they make together."""
    places: dict[str, int] = {}
    for path in (path for one in modules for path in one):
        places.setdefault(path, len(places))

    def key(path: str) -> list[int]:
        steps = ((last(up), up) for up in downwards(path))
        return [int(name) if name.isdecimal() else places.get(up, 0) for name, up in steps]

    return sorted(places, key=key)


def whole_model(about: Description, ranks: Ranks, shapes: Mapping[str, Shape] | None = None) -> Description:
    """Return the description of a whole model, of which ``about`` is one rank's; ``shapes`` are known otherwise."""
    known = shapes or {}
    parameters = {
        path: attrs.evolve(record, shape=known.get(path) or whole_shape(ranks, record))
        for path, record in about.parameters.items()
    }
    modules = {path: _whole_module(path, one, about, ranks) for path, one in about.modules.items()}
    return attrs.evolve(about, parameters=parameters, modules=modules, ranks=None)


def _whole_module(path: str, one: ModuleDescription, about: Description, ranks: Ranks) -> ModuleDescription:
    def whole(unit: Unit) -> Unit:
        return attrs.evolve(unit, roles={role: _part(path, part, about, ranks) for role, part in unit.roles.items()})

    return attrs.evolve(one, units={name: whole(unit) for name, unit in one.units.items()})


def _part(path: str, part: Part, about: Description, ranks: Ranks) -> Part:
    """Return where a role lies in the whole of a sharded parameter, of which ``part`` says it for one rank."""
    name = joined(path, part.parameter)
    record = about.parameters.get(name)
    if part.rows is None or record is None:
        return part
    rows, size = part.rows, record.shape[0]
    for axis, how in ranks.parameters.get(name, {}).items():
        if how == Placement("shard", 0):
            count = len(ranks.groups.get(axis, (ranks.rank,)))
            rows = tuple((a + n * size, b + n * size) for n in range(count) for a, b in rows)
            size *= count
    return attrs.evolve(part, rows=rows)
