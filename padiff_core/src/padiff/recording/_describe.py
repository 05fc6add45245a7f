"""Describe live modules, parameters and arguments as the plain data that a trace holds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from padiff.adapter import Model, Module, Parameter
from padiff.kinds import Setting
from padiff.paths import joined
from padiff.recording._user_hooks import hooks_of
from padiff.trace import Description, ModuleDescription, ModuleRecord, ParameterRecord, SettingRecord, Slot, Text

if TYPE_CHECKING:
    from padiff.recording._live import Live

_IMMUTABLE = (int, float, str, bool, type(None), bytes)
_LONGEST = 200
"""Characters that are kept of how an object reads."""


def described(module: Module, reader: SettingsReader | None = None) -> ModuleDescription:
    """Return a module as plain data."""
    units = {} if module.rule is None else module.rule.units_of(module.native)
    return ModuleDescription(module_record(module), dict((reader or SettingsReader()).of(module)), dict(units))


def describe(model: Model, live: Live | None = None) -> Description:
    """Return a model as plain data, without its values; ``live`` knows what hangs in it, where it does."""
    adapter, known = model.adapter, live or model
    modules = model.modules() if live is None else live.modules
    parameters = model.parameters() if live is None else live.parameters
    return Description(
        framework=adapter.name,
        class_name=type(model.native).__qualname__,
        capabilities=adapter.capabilities,
        device=known.device,
        training=modules[""].training,
        environment=adapter.environment(),
        modules={path: described(module, None if live is None else live.settings) for path, module in modules.items()},
        parameters={path: parameter_record(parameter) for path, parameter in parameters.items()},
        ranks=model.ranks(),
        hooks=hooks_of(modules, parameters, adapter),
        unregistered=_unregistered(modules),
    )


def _unregistered(modules: Mapping[str, Module]) -> dict[str, tuple[str, ...]]:
    """Return what modules hold in plain lists and dictionaries, where the framework does not see it: path -> classes.

    A module is whatever shares with the model the class that makes modules callable.
    """
    base = next((one for one in reversed(type(modules[""].native).__mro__) if "__call__" in vars(one)), None)
    if base is None:
        return {}
    known = {id(module.native) for module in modules.values()}
    found: dict[str, tuple[str, ...]] = {}
    for path, module in modules.items():
        for name, value in vars(module.native).items() if hasattr(module.native, "__dict__") else ():
            if type(value) in (list, tuple, dict):
                held = value.values() if isinstance(value, dict) else value
                hidden = [one for one in held if isinstance(one, base) and id(one) not in known]
                if hidden:
                    found[joined(path, name)] = tuple(type(one).__qualname__ for one in hidden)
    return found


def module_record(module: Module, path: str | None = None) -> ModuleRecord:
    """Return a module as plain data, under another path where one is given."""
    classes = () if module.operation else module.classes
    return ModuleRecord(
        module.path if path is None else path,
        module.class_name,
        module.kind,
        classes,
        module.definition,
        module.operation,
        module.memory,
    )


def parameter_record(parameter: Parameter) -> ParameterRecord:
    """Return a parameter, without its values, as plain data."""
    shape = tuple(int(extent) for extent in parameter.shape)
    return ParameterRecord(
        parameter.path, tuple(parameter.paths), parameter.dtype, shape, parameter.buffer, parameter.trainable
    )


def _setting(setting: Setting, module: Any, native: Any) -> SettingRecord:
    value = plain(setting.value(module))
    return SettingRecord(value, _spelled(value, native, setting.spelled))


def _spelled(value: Any, native: Any, name: str | None) -> str:
    """Return a value, followed by the framework's own spelling where that reads differently."""
    if isinstance(value, float):
        value = float(f"{value:.9g}")
    own = repr(plain(native))
    if name is None or own == repr(value):
        return f"{value!r}"
    return f"{value!r} ({name}={own})"


class SettingsReader:
    """What reads modules' hyper-parameters, call by call, and again only where they changed."""

    def __init__(self) -> None:
        self._known: dict[Module, tuple[list[Any], dict[str, SettingRecord]]] = {}

    def of(self, module: Module) -> Mapping[str, SettingRecord]:
        """Return a module's hyper-parameters as they are now."""
        if module.rule is None or not module.rule.settings:
            return {}
        settings, native = module.rule.settings, module.native
        natives = [setting.native(native) for setting in settings.values()]
        known = self._known.get(module)
        kept = known[1] if known is not None and all(map(_unchanged, known[0], natives)) else {}
        anew = {
            name: _setting(setting, native, value)
            for (name, setting), value in zip(settings.items(), natives, strict=True)
            if name not in kept or setting.derive is not None
        }
        if not anew:
            return kept
        self._known[module] = natives, {**kept, **anew}
        return self._known[module][1]


def _unchanged(before: Any, now: Any) -> bool:
    """Return whether a value is surely the same: what may be changed in place is not."""
    if isinstance(now, _IMMUTABLE):
        return type(before) is type(now) and bool(before == now or before is now)
    return isinstance(now, tuple) and before == now and all(isinstance(item, _IMMUTABLE) for item in now)


def plain(value: Any) -> Any:
    """Return arguments, or the value of a setting, as plain data: numbers, words, ranges, and nests of them.

    Containers become tuples, lists and dicts; what is not plain becomes a `Text`.
    """
    if value is None or type(value) in (bool, int, float, str, Slot, Text):
        return value
    for sort in (bool, int, float, str):
        if isinstance(value, sort):
            return sort(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    if isinstance(value, tuple | list):
        return (tuple if isinstance(value, tuple) else list)(map(plain, value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
    return Text(_read(value))


def _read(value: Any) -> str:
    """Return how a framework's or Python's own object reads; of any other object its class."""
    kind = type(value)
    if callable(value):
        text = str(getattr(value, "__name__", kind.__qualname__))
    elif kind.__module__.partition(".")[0] in _TELLING:
        text = re.sub(r"( object)? at 0x[0-9a-f]+", "", repr(value))
    else:
        text = f"<{kind.__module__}.{kind.__qualname__}>"
    return text[:_LONGEST]


_TELLING = frozenset({"builtins", "torch", "paddle", "mindspore", "jaxlib", "jax", "numpy"})
"""Packages whose objects read as a user would write them: dtypes, devices."""
