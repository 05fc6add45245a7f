"""Know what is live behind a trace: the modules, and the functions and arguments of calls, for whoever replays them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from padiff.adapter import Adapter, Model, Module, Parameter, Tensor
from padiff.errors import PadiffError
from padiff.numerics import Array, epsilon, epsilon_of
from padiff.recording._describe import SettingsReader
from padiff.trace import Call, Key, ModuleRecord


@attrs.frozen
class _Called:
    """What one call was made of: the function of an operation, and the arguments, tensors replaced by slots."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    ambient: Callable[[], AbstractContextManager[None]]


class Live:
    """The live side of a model's last recorded run: what a call of its trace ran, by path and ordinal."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.modules = dict(model.modules())
        """The modules that there are before it runs."""
        self._paths = {id(module.native): path for path, module in self.modules.items()}
        """Of live objects, which this keeps alive."""
        self.records: dict[tuple[Module, str | None], ModuleRecord] = {}
        """Modules that were called, as plain data."""
        self.names: dict[Any, list[str]] = {}
        """What modules run -> the names of its positional arguments."""
        self.settings = SettingsReader()
        self._called: dict[Key, _Called] = {}
        self._places: dict[Key, tuple[Any, ...]] = {}
        """Key of a call -> where each of its inputs lay."""
        self._exact: dict[int, Array] = {}
        """Live parameters, by id, whose dtype is too narrow for what was assigned -> that."""

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """Return the parameters and buffers that there are before it runs."""
        return self.model.parameters()

    @cached_property
    def device(self) -> str:
        """Return where they lie."""
        return self.model.device

    @property
    def adapter(self) -> Adapter:
        """Return the model's adapter."""
        return self.model.adapter

    @cached_property
    def home(self) -> str:
        """Return where the model's inputs go: where the first parameter lies, if it is spread over several devices."""
        return self.device.partition(",")[0]

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Forget the calls of an earlier run; where this one fails those can be replayed still."""
        before = self._called, self._places
        self._called, self._places = {}, {}
        try:
            yield
        except BaseException:
            self._called, self._places = before
            raise

    def share(self, other: Live) -> None:
        """Know what was assigned to the same model through another."""
        self._exact = other._exact

    def keep(self, call: Call, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep what a call is made of."""
        self._called[call.key] = _Called(
            module.native if module.operation else None, args, kwargs, self.adapter.ambient()
        )

    def keep_places(self, call: Call, tensors: Sequence[Tensor]) -> None:
        """Keep where a call's inputs lie: a module without parameters does not tell, and lengths lie on the CPU."""
        self._places[call.key] = tuple(tensor.place for tensor in tensors)

    def places(self, call: Call) -> Sequence[Any]:
        """Return where the inputs of a call lay."""
        return self._places.get(call.key) or [self.home] * len(call.inputs)

    def path_of(self, module: Module) -> str:
        """Return the path of a module in the whole model, of which a part may have been wrapped by itself."""
        return self._paths.get(id(module.native), module.path)

    def find(self, native: Any) -> str | None:
        """Return the path of a live object that is one of the model's modules."""
        return self._paths.get(id(native))

    def native(self, call: Call) -> Any:
        """Return what a call ran: a native module."""
        known = self._called.get(call.key)
        if known is not None and known.function is not None:
            return known.function
        return self.modules[call.path].native

    def changed(self, call: Call) -> list[str]:
        """Return the hyper-parameters of a call's module that are not what they were at the call."""
        module = None if call.module.operation else self.modules.get(call.path)
        if module is None or module.rule is None or not call.settings:
            return []
        now, settings = SettingsReader().of(module), module.rule.settings
        # What is derived may depend on the inputs of the last call.
        return [name for name in now if settings[name].derive is None and now[name] != call.settings.get(name)]

    def arguments(self, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a call's arguments, each tensor replaced by a `Slot`."""
        known = self._known(call)
        return known.args, known.kwargs

    def ambient(self, call: Call) -> AbstractContextManager[None]:
        """Return the mode in which the framework computed at a call."""
        return self._known(call).ambient()

    def _known(self, call: Call) -> _Called:
        if call.key not in self._called:  # given other values, a router may send nothing to an expert
            msg = f"{call.path or 'the model'} (call {call.ordinal + 1}) was not called in the last run"
            raise PadiffError(msg)
        return self._called[call.key]

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite parameters or buffers, and keep what their dtype is too narrow for."""
        for path, array in arrays.items():
            parameter = self.parameters[path]
            parameter.assign(array)
            self._exact.pop(id(parameter.native), None)
            narrow = epsilon_of(parameter.dtype)
            if narrow > epsilon(array.dtype) and not np.array_equal(parameter.view(), array):
                self._exact[id(parameter.native)] = np.array(array)

    @contextmanager
    def lifted(self, model: Model, dtype: str) -> Iterator[None]:
        """Hold a model, this one or a part of it, in a wider type: of what was assigned to it, nothing is rounded."""
        with model.lifted(dtype):
            for parameter in model.parameters().values() if self._exact else ():
                exact = self._exact.get(id(parameter.native))
                if exact is not None:
                    parameter.assign(exact)
            yield
