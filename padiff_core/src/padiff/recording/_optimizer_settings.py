"""Read what optimizers step the parameters of a model with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from padiff.adapter import Adapter, Parameter
from padiff.numerics import epsilon_of, numpy_dtype
from padiff.recording._describe import plain
from padiff.trace import SteppedRecord

_PLAIN = (bool, int, float, str, type(None))


@attrs.define(eq=False)
class MasterWeights:
    """What optimizers step in a wider type, and the script copies to the model's parameters behind each step."""

    paths: dict[int, str] = attrs.field(factory=dict)
    """Identity of what is stepped -> the path of the parameter."""
    _held: list[Any] = attrs.field(factory=list)

    def find(self, adapter: Adapter, parameters: Iterable[Parameter], optimizer: Any) -> None:
        """Know of what an optimizer steps by its values: rounded, they are a parameter's of that shape, in order."""
        parameters, known = list(parameters), {*self.paths.values()}
        own = {id(parameter.native) for parameter in parameters}
        left = [(one, adapter.tensor(one.native)) for one in parameters if one.path not in known and not one.buffer]
        for native, _ in adapter.optimizer_parameters(optimizer):
            if id(native) in own or id(native) in self.paths:
                continue
            master = adapter.tensor(native)
            for both in left:
                narrow = both[1]
                wider = tuple(master.shape) == tuple(narrow.shape) and 0 < epsilon_of(master.dtype) < epsilon_of(
                    narrow.dtype
                )
                if wider and np.array_equal(master.view().astype(numpy_dtype(narrow.dtype)), narrow.view()):
                    left.remove(both)
                    self.paths[id(native)] = both[0].path
                    self._held.append(native)  # so that no other one gets its identity
                    break


def settings_by_path(
    adapter: Adapter, parameters: Iterable[Parameter], optimizer: Any, masters: Mapping[int, str] | None = None
) -> dict[str, Mapping[str, Any]] | None:
    """Return the settings of the parameters that an optimizer steps, by path; None where it knows none of them.

    ``masters`` are paths of parameters whose master weights it steps, by identity.
    """
    paths = {**(masters or {}), **{id(parameter.native): parameter.path for parameter in parameters}}
    known = adapter.optimizer_parameters(optimizer)
    return {paths[id(native)]: dict(settings) for native, settings in known if id(native) in paths} or None


def step_settings(
    adapter: Adapter, parameters: Iterable[Parameter], optimizer: Any, masters: Mapping[int, str]
) -> list[SteppedRecord]:
    """Return what an optimizer steps which parameters with, as plain data.

    Of one that holds ranges in place of parameters (DeepSpeed's ZeRO) what all of its groups have in common.
    """
    found: dict[str, SteppedRecord] = {}
    by_path = settings_by_path(adapter, parameters, optimizer, masters)
    whole = SteppedRecord(_plain(_common(adapter.optimizer_settings(optimizer))))
    if by_path is None and whole.settings:
        return [whole]
    for path, settings in (by_path or {}).items():
        told = _plain(settings)
        record = found.setdefault(repr(told), SteppedRecord(told, []))
        if record.parameters is not None:
            record.parameters.append(path)
    return list(found.values())


def _common(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that groups have of their own."""
    groups = [(name.partition(".")[2], value) for name, value in settings.items() if name.startswith("group")]
    own = {name for name, value in groups if name not in settings or value != settings[name]}
    return {name: value for name, value in settings.items() if not name.startswith("group") and name not in own}


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, _PLAIN) else repr(plain(value)) for name, value in settings.items()}
