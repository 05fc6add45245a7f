"""What is known of a model before it runs."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from padiff.kinds import Ranks, Unit
from padiff.trace._parameters import ParameterRecord
from padiff.trace._records import ModuleRecord, SettingRecord

__all__ = ["Description", "ModuleDescription"]


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
