"""Describe the classes of a framework towards the catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from padiff.kinds._layout import Part


def _same(value: Any) -> Any:
    return value


@attrs.frozen
class Setting:
    """How a class spells one hyper-parameter.

    ``read`` is the attribute's name, or a function of the native module; ``convert`` takes the native value to the
    catalogue's convention (a momentum, a padding); ``spelled`` is the name a user would type in the constructor.
    ``derive`` takes the module itself there, where the native value alone does not tell: what "same" really pads.
    """

    read: str | Callable[[Any], Any]
    convert: Callable[[Any], Any] = _same
    spelled: str | None = None
    derive: Callable[[Any], Any] | None = None

    def native(self, module: Any) -> Any:
        """Return the value as the framework holds it."""
        return getattr(module, self.read) if isinstance(self.read, str) else self.read(module)

    def value(self, module: Any) -> Any:
        """Return the value in the catalogue's convention."""
        return self.convert(self.native(module)) if self.derive is None else self.derive(module)


@attrs.frozen
class Unit:
    """The smallest set of parameters that belongs together: a kind, and for each role where it lies."""

    kind: str | None
    roles: Mapping[str, Part]


@attrs.frozen
class Rule:
    """What a class of a framework is in the catalogue's words.

    ``units`` lists the parameters that modules of this class hold, by unit name: ``{"": Unit("linear", ...)}`` for
    most, ``q``/``k``/``v``/``out`` of kind ``linear`` for a packed attention, ``l0``, ``l0_reverse``, ... of kind
    ``lstm_cell`` for an LSTM. It may be a function of the native module where the number depends on it. Roles whose
    native parameter is absent or None (no bias) are left out by the core.
    """

    kind: str
    units: Mapping[str, Unit] | Callable[[Any], Mapping[str, Unit]] = attrs.field(factory=dict)
    settings: Mapping[str, Setting] = attrs.field(factory=dict)

    def units_of(self, module: Any) -> Mapping[str, Unit]:
        """Return the units of one native module."""
        return self.units(module) if callable(self.units) else self.units


@attrs.frozen
class Habit:
    """What tells a class that every model copies under a new name: how it is called, and what it holds."""

    name: str
    """A regular expression that is searched for in the class's bare name."""
    attributes: tuple[str, ...]
    rule: Rule

    def shown_by(self, module: Any) -> bool:
        """Return whether the class's name fits, and the module has the attributes."""
        named = re.search(self.name, type(module).__name__) is not None
        return named and all(hasattr(module, name) for name in self.attributes)
