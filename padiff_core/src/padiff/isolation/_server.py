"""Answer what the parent asks of a worker: all that an adapter's classes can do.

Objects come as themselves, since a stand-in in a request becomes what it stands for; they go as numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from numpy.typing import NDArray

from padiff.adapter import Adapter, Extent, Hook, Listener, Model, Module, Parameter, Tensor
from padiff.errors import InputError
from padiff.import_string import load
from padiff.isolation._channel import Channel
from padiff.isolation._shown import Shown, plain, shown
from padiff.isolation._sight import Sight
from padiff.kinds import Setting, Unit
from padiff.pytree import map_leaves
from padiff.recording import OperatingAdapter, Stack

__all__ = ["Server"]

Array = NDArray[Any]
Named = tuple[int, str, str]
"""An object's number, and its class."""


class Server:
    """Do what is asked: the public methods are the requests, those that end in ``_`` the notes."""

    def __init__(self, channel: Channel, sight: Sight, native: Any) -> None:
        self._channel = channel
        self._sight = sight
        self._pins = sight.pins
        self._adapter: Adapter = sight.adapter
        self._native = native
        self._operating = OperatingAdapter(sight.adapter)
        self._hooks: dict[int, Hook] = {}

    # The adapter --------------------------------------------------------------------------------------------

    def root(self) -> dict[str, Any]:
        """Describe the adapter, and name the model."""
        adapter = self._adapter
        return {
            "name": adapter.name,
            "capabilities": adapter.capabilities,
            "machinery": adapter.machinery,
            "library": adapter.library,
            "own": adapter.own,
            "native": self._sight.object(self._native),
        }

    def wrap(self, native: Any) -> Named:
        """Wrap a module as a model."""
        return self._sight.object(self._adapter.wrap(native))

    def from_numpy(self, array: Array | None, device: str, differentiable: bool) -> tuple[Any, ...]:
        """Make a tensor."""
        native = self._adapter.from_numpy(self._given(array), device=device, differentiable=differentiable)
        return self._sight.tensor(native, eager=False)

    def environment(self) -> dict[str, str]:
        """Return what a reader of a report needs."""
        return dict(self._adapter.environment())

    def seeded(self, seed: int) -> int:
        """Open a context with seeded generators."""
        return self._opened(self._adapter.seeded(seed))

    def quiet(self) -> int:
        """Open a context without chatter."""
        return self._opened(self._adapter.quiet())

    def preserved(self, model: Model) -> int:
        """Open a context behind which the model is as it was."""
        return self._opened(model.preserved())

    def lifted(self, model: Model, dtype: str) -> int:
        """Open a context with the model in another dtype."""
        return self._opened(model.lifted(dtype))

    def leave(self, number: int) -> None:
        """Leave a context."""
        context = self._pins.get(number)
        self._pins.drop([(number, 1)])
        context.__exit__(None, None, None)

    def _opened(self, context: AbstractContextManager[None]) -> int:
        context.__enter__()
        return self._pins.send(context)

    def optimizer_settings(self, optimizer: Any) -> Any:
        """Return an optimizer's hyper-parameters."""
        return plain(dict(self._adapter.optimizer_settings(optimizer)))

    # A model's tree -----------------------------------------------------------------------------------------

    def modules(self, model: Model) -> list[tuple[str, Named, bool]]:
        """List the modules: path, native object, whether it is in training mode."""
        return [(path, self._sight.object(m.native), m.training) for path, m in model.modules().items()]

    def described(self, model: Model, paths: list[str]) -> list[dict[str, Any]]:
        """Describe modules: what stays while they live."""
        found = model.modules()
        return [_described(found[path]) for path in paths]

    def readings(self, model: Model) -> dict[str, tuple[dict[str, Any], Any]]:
        """Read every module's hyper-parameters, in the catalogue's convention and as the framework holds them, and
        its units; what raises comes as the error that it is."""
        return {path: self._reading(module) for path, module in model.modules().items() if module.rule is not None}

    def _reading(self, module: Module) -> tuple[dict[str, Any], Any]:
        rule, native = module.rule, module.native
        assert rule is not None

        def setting(one: Setting) -> tuple[Any, Any]:
            return plain(one.value(native)), shown(one.native(native))

        def units() -> dict[str, Unit]:
            return {name: Unit(unit.kind, dict(unit.roles)) for name, unit in rule.units_of(native).items()}

        settings = {name: self._tried(partial(setting, one)) for name, one in rule.settings.items()}
        return settings, self._tried(units)

    def _tried(self, function: Callable[[], Any]) -> tuple[str, Any]:
        try:
            return "read", function()
        except Exception as error:
            return "raised", self._channel.told(error)

    def child(self, native: Any, name: str) -> Named:
        """Return what hangs at a module under a name."""
        return self._sight.object(getattr(native, name))

    def device(self, model: Model) -> str:
        """Return where a model's parameters lie."""
        return model.device

    # Parameters ---------------------------------------------------------------------------------------------

    def parameters(self, model: Model) -> list[tuple[Any, ...]]:
        """List the parameters and buffers."""
        return [self._parameter(parameter) for parameter in model.parameters().values()]

    def _parameter(self, parameter: Parameter) -> tuple[Any, ...]:
        own = self._sight.object(parameter), parameter.path, parameter.paths, parameter.buffer, parameter.dtype
        try:
            return *own, parameter.trainable, parameter.shape
        except InputError as error:  # not built yet
            return *own, False, str(error)

    def extent(self, *parameters: Parameter) -> list[Extent | None]:
        """Return the addresses of parameters' values."""
        return [parameter.extent() for parameter in parameters]

    def view(self, *parameters: Parameter) -> list[Array]:
        """Return parameters' values."""
        return [parameter.view() for parameter in parameters]

    def assign(self, parameter: Parameter, array: Array) -> None:
        """Overwrite a parameter."""
        parameter.assign(array)

    def gradient(self, *parameters: Parameter) -> list[Array | None]:
        """Return parameters' gradients."""
        return [parameter.gradient() for parameter in parameters]

    def set_gradient(self, parameter: Parameter, array: Array | None) -> None:
        """Set a parameter's gradient."""
        parameter.set_gradient(array)

    # Tensors ------------------------------------------------------------------------------------------------

    def numpy(self, native: Any) -> Array:
        """Return a tensor's values: a view is enough, for sending copies it."""
        return self._adapter.tensor(native).view()

    def read(self, native: Any, target: str, arrays: tuple[Array, ...]) -> Any:
        """Return what a function of padiff or numpy makes of a tensor's values."""
        self._sight.read = arrays[-1] if arrays else None
        return self._adapter.tensor(native).read(load(target), *arrays)

    def overwrite(self, native: Any, array: Array | None) -> bool:
        """Write to a tensor's memory."""
        return self._adapter.tensor(native).overwrite(self._given(array))

    def swapped(self, native: Any, array: Array | None) -> tuple[Any, ...]:
        """Return a tensor with other values in another's place."""
        return self._sight.tensor(self._adapter.tensor(native).swapped(self._given(array)), eager=False)

    def _given(self, array: Array | None) -> Array:
        """Return an array that was sent, or the one that was sent before, to compare with."""
        found = self._sight.read if array is None else array
        assert found is not None
        return found

    # Running ------------------------------------------------------------------------------------------------

    def attach(self, model: Model, enter: int, leave: int, wants: str | None, operations: bool) -> None:
        """Tell the parent of every call, by two callbacks, with what it wants to read of every new tensor.

        With ``operations`` those of the model's own code are calls too.
        """
        self._sight.forget()
        self._sight.wants = None if wants is None else load(wants)
        heard = self._operating.model(model) if operations else model
        self._hooks[enter] = heard.attach(_Forwarder(self._channel, self._sight, enter, leave))

    def run(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any], differentiate: int | None) -> Any:
        """Run a model; backward from what the parent says, if it wants that. Return what the parent has not seen yet.

        Behind the backward pass nothing more is asked of the output: some frameworks have let go of its graph.
        """
        shown: list[Any] = []

        def starts(output: Any) -> list[tuple[Any, Any]]:
            shown.append(output)
            found: list[tuple[Any, Any]]
            assert differentiate is not None
            found = self._sight.told(self._channel, differentiate, self._sight.value(output))
            return found

        output = model.run(args, kwargs, None if differentiate is None else starts)
        return None if shown else self._sight.value(output, eager=False)

    def evaluate(self, model: Model) -> None:
        """Put a model into evaluation mode."""
        model.evaluate()

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call a function of the user's, such as a loss, on what the model gave."""
        return self._sight.value(function(*args))

    def use(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the user's on the model; return plain data, and tensors as arrays."""
        return self.neutral(function(self._native, *args, **kwargs))

    def neutral(self, value: Any) -> Any:
        """Return a value with its tensors as arrays."""
        adapter = self._adapter
        return map_leaves(value, adapter.is_tensor, lambda _, native: adapter.tensor(native).view())

    def step(self, model: Model, optimizer: Any) -> None:
        """Let an optimizer step."""
        model.step(optimizer)

    def is_optimizer(self, value: Any) -> bool:
        """Return whether an object can step."""
        return self._adapter.is_optimizer(value) or (callable(value) and not isinstance(value, type))

    # Notes --------------------------------------------------------------------------------------------------

    def on_gradient_(self, native: Any, callback: int) -> None:
        """Call the parent back with a tensor's gradient."""

        def arrived(gradient: Tensor) -> Any:
            return self._sight.told(self._channel, callback, self._sight.tensor(gradient.native))

        self._hooks[callback] = self._adapter.tensor(native).on_gradient(arrived)

    def close_(self, callback: int) -> None:
        """Remove the hook that was registered for a callback."""
        self._hooks.pop(callback).close()

    def rest(self) -> dict[str, int]:
        """Give back what is not needed until the next diff; tell what is still held."""
        self._sight.forget()
        wire = self._channel.wire
        self._channel.note("retire", wire.trim())
        return {
            "objects": len(self._pins),
            "lent": wire.lent,
            "bytes": wire.arena.taken,
            "segments": wire.arena.segments,
        }


class _Forwarder(Listener):
    """Send what a listener hears to the parent, where the listener is."""

    def __init__(self, channel: Channel, sight: Sight, enter: int, leave: int) -> None:
        self._channel = channel
        self._sight = sight
        self._callbacks = enter, leave
        self._stack = Stack(sight.adapter)

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Tell of a call that begins."""
        frames = [(f.file, f.line, f.function, f.start, f.library) for f in self._stack.frames()]
        described = partial(self._sight.value, lasting=True, by_value=module.operation)
        given = [described(value) for value in args]
        named = {name: described(value) for name, value in kwargs.items()}
        operation = self._operation(module) if module.operation else None
        number = self._sight.pins.number(module.native)
        found: tuple[Any, Any] | None
        found = self._sight.told(
            self._channel, self._callbacks[0], number, module.training, frames, given, named, operation
        )
        return found

    def _operation(self, module: Module) -> tuple[Any, ...]:
        """Describe an operation: no list of the model's modules holds it."""
        native, kind = self._sight.object(module.native), module.kind
        return native, module.path, module.class_name, kind, module.memory, _signature(module.forward)

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        """Tell of a call that ended."""
        number = self._sight.pins.number(module.native)
        return self._sight.told(self._channel, self._callbacks[1], number, self._sight.value(output))


def _described(module: Module) -> dict[str, Any]:
    rule = module.rule
    return {
        "kind": rule.kind if rule else None,
        "spelled": {name: setting.spelled for name, setting in rule.settings.items()} if rule else {},
        "forward": _signature(module.forward),
        "definition": module.definition,
        "classes": [f"{cls.__module__}.{cls.__qualname__}" for cls in type(module.native).__mro__],
    }


def _signature(forward: Callable[..., Any]) -> tuple[str, list[tuple[Any, ...]] | None, Any]:
    """Return a function's name and signature, with defaults and annotations as they read."""
    name = getattr(forward, "__name__", "forward")
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return name, None, None
    empty = inspect.Parameter.empty
    parameters = [
        (
            p.name,
            int(p.kind),
            () if p.default is empty else (Shown(repr(p.default)),),
            () if p.annotation is empty else (Shown(inspect.formatannotation(p.annotation)),),
        )
        for p in signature.parameters.values()
    ]
    returned = signature.return_annotation
    return name, parameters, () if returned is empty else (Shown(inspect.formatannotation(returned)),)
