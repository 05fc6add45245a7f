"""List the parameters of a model as units: the smallest sets that belong to one kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from padiff.adapter import Model, Module, Parameter
from padiff.kinds import Part
from padiff.plugins import Row
from padiff.recording import described
from padiff.trace import settings_of

__all__ = ["Held", "HeldUnit", "units_of"]

_STATISTIC = re.compile(r"(^|_)(running|moving|mean|var|variance|ema|avg|std)(_|$)")


@attrs.frozen
class Held:
    """Say where one role of a unit lies in its model, and its canonical shape."""

    parameter: Parameter
    part: Part
    shape: tuple[int, ...]


@attrs.define(eq=False)
class HeldUnit:
    """Locate one unit in a model: the module that holds it, its kind, its roles."""

    module: Module
    name: str
    kind: str | None
    roles: Mapping[str, Held]
    special: Row | None = None
    """The special transfer that the module belongs to."""
    extras: Mapping[str, Held] = attrs.field(factory=dict)
    """Of a special transfer: buffers that it may read and write, and that nobody misses."""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the hyper-parameters of its module, in the catalogue's convention."""
        return settings_of(described(self.module))

    @property
    def path(self) -> str:
        """Return the module's path with the unit's name."""
        return f"{self.module.path}.{self.name}" if self.name else self.module.path


def units_of(model: Model, special_of: Callable[[Module], Row | None] | None = None) -> list[HeldUnit]:
    """Return every unit, in registration order.

    A module that ``special_of`` gives a special transfer forms one unit with all that is below it.
    A parameter that a parent's rule claims (a packed attention's ``out_proj.weight``) is not listed again for the
    child. What no rule speaks of forms a unit of kind None of its module. Of buffers, those that rules name are listed,
    and of modules without rule those that are named like statistics (``running_mean``): state that training changes.
    """
    by_path = {path: p for p in model.parameters().values() for path in p.paths}
    own: dict[str, list[str]] = {}
    for path in by_path:
        owner, _, name = path.rpartition(".")
        own.setdefault(owner, []).append(name)
    claimed: set[str] = set()
    units: list[HeldUnit] = []
    inside: list[str] = []
    for module in model.modules().values():
        if any(module.path.startswith(top) for top in inside):
            continue
        special = None if special_of is None else special_of(module)
        if special is not None:
            inside.append(f"{module.path}." if module.path else "")
            units.append(_special(module, special, by_path, claimed))
            claimed.update(path for held in units[-1].roles.values() for path in held.parameter.paths)
            continue
        rule = module.rule
        found: list[Held] = []
        for name, unit in (rule.units_of(module.native) if rule else {}).items():
            roles = {
                role: _held(by_path[path], part)
                for role, part in unit.roles.items()
                if (path := _join(module.path, part.parameter)) in by_path and path not in claimed
            }
            if roles:
                units.append(HeldUnit(module, name, unit.kind, roles))
                found.extend(roles.values())
        # By every name below the module: some frameworks hang a cell's parameters under two.
        below = f"{module.path}." if module.path else ""
        claimed.update(path for held in found for path in held.parameter.paths if path.startswith(below))
        rest = {
            name: _held(by_path[_join(module.path, name)], Part(name))
            for name in own.get(module.path, ())
            if _join(module.path, name) not in claimed
            and (not by_path[_join(module.path, name)].buffer or (rule is None and _STATISTIC.search(name)))
        }
        if rest:
            units.append(HeldUnit(module, "", None, rest))
    return units


def _special(module: Module, row: Row, by_path: Mapping[str, Parameter], claimed: set[str]) -> HeldUnit:
    """Return the unit of a module with a special transfer: each parameter below it once, under its first name."""
    prefix = f"{module.path}." if module.path else ""
    held: dict[str, Held] = {}
    seen: set[int] = set()
    for path, parameter in by_path.items():
        if path.startswith(prefix) and path not in claimed and id(parameter) not in seen:
            seen.add(id(parameter))
            name = path[len(prefix) :]
            held[name] = _held(parameter, Part(name))
    extras = {
        name: one
        for name, one in held.items()
        if one.parameter.buffer and not _STATISTIC.search(name.rpartition(".")[2])
    }
    roles = {name: one for name, one in held.items() if name not in extras}
    return HeldUnit(module, "", f"special transfer {row.name}", roles, row, extras)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _held(parameter: Parameter, part: Part) -> Held:
    return Held(parameter, part, part.read(np.broadcast_to(np.empty(()), parameter.shape)).shape)
