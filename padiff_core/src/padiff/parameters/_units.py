"""List the parameters of a model as units: the smallest sets that belong to one kind."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.grouping import grouped
from padiff.kinds import Part
from padiff.paths import below, is_at, joined, last, parent, upwards
from padiff.plugins import Row
from padiff.trace import Description, ModuleDescription, ModuleRecord, ParameterRecord, SettingRecord

Native = Callable[[ParameterRecord], NDArray[Any] | None]
"""Reads of a parameter its values, or its gradient, in the framework's own layout."""

_STATISTIC = re.compile(r"(^|_)(running|moving|mean|var|variance|ema|avg|std)(_|$)")


@attrs.frozen(eq=False)
class Held:
    """One role of a unit: where it lies in its model, and its canonical shape."""

    parameter: ParameterRecord
    part: Part
    shape: tuple[int, ...]
    added: tuple[Held, ...] = ()
    """Others that count in the sum with it alone: the biases of layers whose results are added up."""

    def lying(self, **where: Any) -> Held:
        """Return what lies elsewhere in its parameter, as `Part` says; so does what is added to it."""
        part = attrs.evolve(self.part, **where)
        added = tuple(one.lying(**where) for one in self.added)
        return Held(self.parameter, part, part.shape(self.parameter.shape), added)


@attrs.frozen(eq=False)
class HeldUnit:
    """A unit of a model: the module that holds it, its kind, its roles."""

    module: ModuleRecord
    name: str
    kind: str | None
    roles: Mapping[str, Held]
    settings: Mapping[str, SettingRecord] = attrs.field(factory=dict)
    """The hyper-parameters of its module."""
    special: Row | None = None
    """The special transfer that the module belongs to."""
    extras: Mapping[str, Held] = attrs.field(factory=dict)
    """Of a special transfer: buffers that it may read and write, and that nobody misses."""
    value: Native | None = None
    """Of a special transfer: what reads values of parameters, which decide what its function gives."""
    stack: tuple[HeldUnit, ...] = ()
    """The units that are taken together, of which it is the first: alike, and one for each place of a stack."""

    @classmethod
    def of_one(cls, module: ModuleRecord, name: str, parameter: ParameterRecord) -> HeldUnit:
        """Return a unit of one parameter, which hangs at a module under a name."""
        return cls(module, "", None, {name: _held(parameter, Part(name))})

    @property
    def path(self) -> str:
        """Return the module's path with the unit's name."""
        return f"{self.module.path}.{self.name}" if self.name else self.module.path

    @property
    def paths(self) -> set[str]:
        """Return the paths of the parameters that it holds, each under its first name."""
        return {held.parameter.path for held in self.roles.values()}

    def piece(self, role: str) -> HeldUnit:
        """Return what it holds under a role as a unit of its own, of which no rule speaks."""
        return HeldUnit(self.module, role, None, {role: self.roles[role]}, self.settings)

    def name_of(self, held: Held) -> str:
        """Return what a role is called: as the layer that holds it, or by itself: in no layer, or a buffer."""
        return self.path if self.kind and not held.parameter.buffer else held.parameter.path

    @property
    def loose(self) -> bool:
        """Return whether no layer's rule speaks of it, and it is no stack."""
        return self.kind is None and not self.stack

    @property
    def turns(self) -> bool:
        """Return whether it is a square matrix by itself, taken for a layer's: nothing tells which way it lies.

        Of one with heads around its inputs these tell: they are rows.
        """
        held = self.roles.get("weight")
        if held is None or held.part.cut or held.part.order is not None:
            return False
        return self.kind is not None and self.module.kind is None and len(held.shape) == len({*held.shape}) + 1 == 2

    @property
    def turned(self) -> HeldUnit:
        """Return it with its matrix the other way round."""
        weight = self.roles["weight"]
        turned = weight.lying(transpose=None if weight.part.transpose else (1, 0))
        return attrs.evolve(self, roles={**self.roles, "weight": turned})

    @property
    def units(self) -> tuple[HeldUnit, ...]:
        """Return the units that are taken together, or itself alone."""
        return self.stack or (self,)


Units = Sequence[HeldUnit]


def with_added(units: Iterable[HeldUnit], sums: Mapping[Held, Sequence[Held]]) -> list[HeldUnit]:
    """Return units in which some parameters are added to others, and have no role of their own."""
    gone = {one for some in sums.values() for one in some}
    return [
        attrs.evolve(unit, roles={role: _with(held, sums) for role, held in unit.roles.items() if held not in gone})
        for unit in units
    ]


def _with(held: Held, sums: Mapping[Held, Sequence[Held]]) -> Held:
    more = [part for one in sums.get(held, ()) for part in (one, *one.added)]
    return attrs.evolve(held, added=(*held.added, *more)) if more else held


def units_of(
    model: Description,
    special_of: Callable[[ModuleRecord], Row | None] | None = None,
    value: Native | None = None,
) -> list[HeldUnit]:
    """Return every unit, in registration order.

    A module that ``special_of`` gives a special transfer forms one unit with all that is below it; ``value`` then
    reads the values of parameters.
    What a forward computes from another parameter (``weight`` of ``weight_orig``, under spectral norm) is none, and a
    module with such a role is of no kind: all that it holds is one unit, as it is where the same is written by hand.
    A parameter that a parent's rule claims (a packed attention's ``out_proj.weight``) is not listed again for the
    child. What no rule speaks of forms a unit of kind None of its module. Of buffers, those that rules name are listed,
    and of modules without rule those that are named like statistics (``running_mean``): state that training changes.
    """
    by_path = {path: p for p in model.parameters.values() for path in p.paths}
    own: dict[str, list[str]] = {}
    for parameter in model.parameters.values():
        for owner, names in grouped(parameter.paths, parent).items():  # one may hang at a module under several
            own.setdefault(owner, []).append(last(names[0]))
    around = {path for owner in own if owner for path in upwards(parent(owner))}  # what holds a module that holds some
    claimed: set[str] = set()
    units: list[HeldUnit] = []
    inside: list[str] = []
    kinds = {about.module.path: about.module.kind for about in model.modules.values()}
    for about in model.modules.values():
        module = about.module
        if any(is_at(module.path, top) for top in inside):
            continue
        special = None if special_of is None else special_of(module)
        if special is not None:
            inside.append(module.path)
            units.append(_special(about, special, by_path, claimed, value))
            claimed.update(path for held in units[-1].roles.values() for path in held.parameter.paths)
            continue
        found, computed = _by_rule(about, by_path, own, claimed)
        # By every name below the module: some frameworks hang a cell's parameters under two.
        claimed.update(
            path
            for unit in found
            for held in unit.roles.values()
            for path in held.parameter.paths
            if is_at(path, module.path)
        )
        rest = {
            name: _held(by_path[joined(module.path, name)], Part(name))
            for name in own.get(module.path, ())
            if joined(module.path, name) not in claimed
            and (not by_path[joined(module.path, name)].buffer or (module.kind is None and _STATISTIC.search(name)))
        }
        if module.kind is not None and computed and len(found) <= 1:
            rest |= _behind(module, kinds, by_path, claimed) if module.path in around else {}
            if rest:
                rest = {**(found[0].roles if found else {}), **rest}
                claimed.update(path for held in rest.values() for path in held.parameter.paths)
                found = []
        units += found
        if rest:
            units.append(HeldUnit(module, "", None, rest, about.settings))
    return units


def _by_rule(
    about: ModuleDescription,
    by_path: Mapping[str, ParameterRecord],
    own: Mapping[str, Sequence[str]],
    claimed: Collection[str],
) -> tuple[list[HeldUnit], bool]:
    """Return the units that a module's rule names, and whether a forward computes something that they would hold."""
    found = []
    computed = False
    for name, unit in about.units.items():
        paths = {role: joined(about.module.path, part.parameter) for role, part in unit.roles.items()}
        roles = {
            role: _held(by_path[path], unit.roles[role])
            for role, path in paths.items()
            if path in by_path and path not in claimed and not _is_derived(path, by_path, own)
        }
        computed |= len(roles) < len(paths)
        if roles:
            found.append(HeldUnit(about.module, name, unit.kind, roles, about.settings))
    return found, computed


def _is_derived(path: str, by_path: Mapping[str, ParameterRecord], own: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a buffer holds what is made of a parameter beside it, which is named after it.

    ``own`` are the names of what each module holds.
    """
    held = by_path[path]
    home, _, name = path.rpartition(".")
    like = (by_path[joined(home, other)] for other in own[home] if held.buffer and other.startswith(f"{name}_"))
    return any(one.shape == held.shape and not one.buffer for one in like)


def _behind(
    module: ModuleRecord,
    kinds: Mapping[str, str | None],
    by_path: Mapping[str, ParameterRecord],
    claimed: set[str],
) -> dict[str, Held]:
    """Return the parameters in modules of no kind below a module, of which it computes its own (parametrizations)."""
    found: dict[str, Held] = {}
    for path, parameter in by_path.items():
        name = below(path, module.path)
        if "." in name and path not in claimed and not parameter.buffer:
            between = itertools.takewhile(lambda one: one != module.path, upwards(parent(path)))
            if not any(map(kinds.get, between)):
                found[name] = _held(parameter, Part(name))
    return found


def _special(
    about: ModuleDescription,
    row: Row,
    by_path: Mapping[str, ParameterRecord],
    claimed: set[str],
    value: Native | None,
) -> HeldUnit:
    """Return the unit of a module with a special transfer: each parameter below it once, under its first name."""
    module = about.module
    held: dict[str, Held] = {}
    seen: set[str] = set()
    for path, parameter in by_path.items():
        name = below(path, module.path)
        if name and path not in claimed and parameter.path not in seen:
            seen.add(parameter.path)
            held[name] = _held(parameter, Part(name))
    extras = {name: one for name, one in held.items() if one.parameter.buffer and not _STATISTIC.search(last(name))}
    roles = {name: one for name, one in held.items() if name not in extras}
    return HeldUnit(module, "", f"special transfer {row.name}", roles, about.settings, row, extras, value)


def _held(parameter: ParameterRecord, part: Part) -> Held:
    return Held(parameter, part, part.shape(parameter.shape))
