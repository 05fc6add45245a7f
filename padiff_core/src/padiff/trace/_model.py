"""What is known of a model before it runs."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from padiff.kinds import Part, Ranks, Unit
from padiff.paths import joined
from padiff.trace._records import ModuleRecord, ParameterRecord, SettingRecord


@attrs.frozen
class ModuleDescription:
    """A module with its hyper-parameters as they are now, and the units that its parameters form."""

    module: ModuleRecord
    settings: Mapping[str, SettingRecord]
    units: Mapping[str, Unit] = attrs.field(factory=dict)


@attrs.frozen
class Description:
    """A model as plain data, without its values."""

    framework: str
    """The adapter's name."""
    class_name: str
    """The bare name of the model's class."""
    capabilities: frozenset[str]
    """What the adapter offers: see `padiff.adapter.CAPABILITIES`."""
    device: str
    """Where the parameters lie; several joined with commas."""
    training: bool
    environment: Mapping[str, str]
    modules: Mapping[str, ModuleDescription]
    """Every module once, by its first path, parents first."""
    parameters: Mapping[str, ParameterRecord]
    """Every parameter and buffer once, by its first path."""
    ranks: Ranks | None = None
    """What the process was among several; None where it was the only one."""
    hooks: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """A script's own functions that run around a module, or on its parameters' gradients: path -> names, lines."""
    unregistered: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Where modules lie in plain lists, which the framework does not look into: path of the list -> their classes."""


def layouts_of(model: Description) -> dict[str, Part]:
    """Return how the canonical values of parameters lie in the native ones, by path, as far as kinds say.

    A parameter of which a role is only a part is not named.
    """
    paths = {path: one.path for one in model.parameters.values() for path in one.paths}
    found: dict[str, Part] = {}
    for home, module in model.modules.items():
        for unit in module.units.values():
            for part in unit.roles.values():
                path = paths.get(joined(home, part.parameter))
                if path is not None:
                    found.setdefault(path, part)  # as `padiff.parameters.units_of`: the parents' rules come first
    return {path: part for path, part in found.items() if not part.partial}
