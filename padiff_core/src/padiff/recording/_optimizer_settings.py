"""Read what optimizers step the parameters of a model with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from padiff.adapter import Adapter, Parameter
from padiff.trace import SteppedRecord

_PLAIN = (bool, int, float, str, type(None))


def settings_by_path(
    adapter: Adapter, parameters: Iterable[Parameter], optimizer: Any
) -> dict[str, Mapping[str, Any]] | None:
    """Return the settings of the parameters that an optimizer steps, by path; None where it knows none of them."""
    paths = {id(parameter.native): parameter.path for parameter in parameters}
    known = adapter.optimizer_parameters(optimizer)
    return {paths[id(native)]: dict(settings) for native, settings in known if id(native) in paths} or None


def step_settings(adapter: Adapter, parameters: Iterable[Parameter], optimizer: Any) -> list[SteppedRecord]:
    """Return what an optimizer steps which parameters with, as plain data.

    Of one that holds ranges in place of parameters (DeepSpeed's ZeRO) what all of its groups have in common.
    """
    found: dict[str, SteppedRecord] = {}
    by_path = settings_by_path(adapter, parameters, optimizer)
    whole = SteppedRecord(_plain(_common(adapter.optimizer_settings(optimizer))))
    if by_path is None and whole.settings:
        return [whole]
    for path, settings in (by_path or {}).items():
        plain = _plain(settings)
        record = found.setdefault(repr(plain), SteppedRecord(plain, []))
        if record.parameters is not None:
            record.parameters.append(path)
    return list(found.values())


def _common(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that groups have of their own."""
    groups = [(name.partition(".")[2], value) for name, value in settings.items() if name.startswith("group")]
    own = {name for name, value in groups if name not in settings or value != settings[name]}
    return {name: value for name, value in settings.items() if not name.startswith("group") and name not in own}


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, _PLAIN) else str(value) for name, value in settings.items()}
