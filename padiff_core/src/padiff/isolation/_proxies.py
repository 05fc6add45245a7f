"""Let the engine use a worker's model as any other: an adapter whose classes pass everything on."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from numpy.typing import NDArray

from padiff.adapter import Adapter, Extent, Hook, Listener, Model, Module, Parameter, Tensor
from padiff.errors import InputError
from padiff.isolation._references import referred
from padiff.isolation._session import Session
from padiff.isolation._shelf import Readings, Shelf
from padiff.isolation._standin import StandIn, TensorStandIn
from padiff.kinds import Rule, Setting
from padiff.trace import Frame

__all__ = ["RemoteAdapter", "RemoteModel"]

Array = NDArray[Any]

_WIDEST = 8
"""Bytes of an element, at most, but for complex ones."""


class RemoteTensor(Tensor):
    """Wrap the stand-in of a tensor; what is told with it costs no request."""

    __slots__ = ()

    native: TensorStandIn

    @property
    def identity(self) -> Any:
        """Return an object that lives as long as the tensor does there."""
        return self.native.identity

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return self.native.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.native.shape

    @property
    def device(self) -> str:
        """Return where it lies there."""
        return self.native.device

    @property
    def version(self) -> int:
        """Return the count of in-place changes."""
        return self.native.version

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it."""
        return self.native.differentiable

    def numpy(self) -> Array:
        """Return a snapshot, in memory that both processes share."""
        told = self.native.told
        if told is not None and told[0] == "values":
            values: Array = told[1]
        else:
            values = self.native._session.request("numpy", self.native)
        return values

    def read(self, function: Callable[..., Any], *arrays: Array) -> Any:
        """Return what a function makes of the values: there, so that they need not come here."""
        native, session = self.native, self.native._session
        if native.told is not None and native.told[0] == "values":
            return function(*arrays, native.told[1])
        name = referred(function, "function")
        if native.told is not None and name == session.wants and not arrays:
            return native.told[1]
        found = session.request("read", native, name, arrays)
        session.read = arrays[-1] if arrays else None
        return found

    def extent(self) -> Extent | None:
        """Return the addresses of its memory there."""
        return self.native.extent

    def overwrite(self, array: Array) -> bool:
        """Write an array into its memory there."""
        self.native.told = None
        done: bool = self.native._session.request("overwrite", self.native, self.native._session.unless_read(array))
        return done

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back with the gradient."""
        session = self.native._session
        number = session.callback(lambda about: callback(RemoteTensor(session.tensor(about))))
        session.note("on_gradient", self.native, number)
        return _hook(session, number)

    def swapped(self, array: Array) -> TensorStandIn:
        """Return the stand-in of a tensor with the array's bits."""
        session = self.native._session
        return session.tensor(session.request("swapped", self.native, session.unless_read(array)))


def _hook(session: Session, *callbacks: int) -> Hook:
    def close() -> None:
        session.note("close", callbacks[0])
        session.forget(*callbacks)

    return Hook(close)


class RemoteParameter(Parameter):
    """Wrap the stand-in of a parameter's own wrapper there."""

    def __init__(self, session: Session, about: tuple[Any, ...], shelf: Shelf) -> None:
        named, path, paths, buffer, self._dtype, self._trainable, self._shape = about
        super().__init__(path, session.object(named), buffer=buffer, paths=paths)
        self._session = session
        self._shelf = shelf
        shelf.add(self.native, 0 if isinstance(self._shape, str) else math.prod(self._shape) * _WIDEST)

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return str(self._dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the native shape; raise `InputError` where it has none yet."""
        if isinstance(self._shape, str):
            raise InputError(self._shape)
        return tuple(self._shape)

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient."""
        return bool(self._trainable)

    def view(self) -> Array:
        """Return the values, in shared memory."""
        values: Array = self._shelf.take("view", self.native)
        return values

    def extent(self) -> Extent | None:
        """Return the addresses of its values there."""
        found: Extent | None = self._shelf.take("extent", self.native)
        return found

    def assign(self, array: Array) -> None:
        """Overwrite the values."""
        self._session.request("assign", self.native, array)

    def gradient(self) -> Array | None:
        """Return the gradient, in shared memory."""
        values: Array | None = self._shelf.take("gradient", self.native)
        return values

    def set_gradient(self, array: Array | None) -> None:
        """Set the gradient."""
        self._session.request("set_gradient", self.native, array)


class _RemoteNode(Module):
    """Wrap a stand-in whose calls are heard from there."""

    def __init__(self, path: str, native: StandIn, rule: Rule | None, forward: tuple[Any, ...]) -> None:
        super().__init__(path, native, rule)
        self.mode = False
        self._forward = _forward(*forward)

    @property
    def training(self) -> bool:
        """Return whether it was in training mode when it was last heard of."""
        return self.mode

    @property
    def forward(self) -> Callable[..., Any]:
        """Return a function with the name and the signature of what runs there; it cannot be called."""
        return self._forward


class RemoteModule(_RemoteNode):
    """Wrap the stand-in of a module; hyper-parameters are read there when they are asked for."""

    def __init__(self, path: str, native: StandIn, about: Mapping[str, Any], readings: Readings) -> None:
        super().__init__(path, native, _rule(path, about, readings) if about["kind"] else None, about["forward"])
        self._about = about

    @property
    def definition(self) -> tuple[str, int] | None:
        """Return file and line where the module's forward is defined."""
        found: tuple[str, int] | None = self._about["definition"]
        return found

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the qualified names of its classes there."""
        return tuple(self._about["classes"])

    def is_a(self, cls: type | str) -> bool:
        """Return whether the module is of a class, by the class's name."""
        name = cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"
        return any(name in (known, known.rpartition(".")[2]) for known in self._about["classes"])


class RemoteOperation(_RemoteNode):
    """Be a function that a remote model's own code calls."""

    operation = True

    def __init__(self, native: StandIn, path: str, name: str, kind: str | None, memory: str, forward: Any) -> None:
        super().__init__(path, native, Rule(kind) if kind else None, forward)
        self.memory = memory
        self._name = name

    @property
    def class_name(self) -> str:
        """Return the function's full name."""
        return self._name

    @property
    def definition(self) -> None:
        """Return None: the line of an operation is where it is called."""
        return


def _rule(path: str, about: Mapping[str, Any], readings: Readings) -> Rule:
    """Return a rule whose settings and units come from the worker."""

    def setting(name: str, spelled: str | None) -> Setting:
        return Setting(lambda _: readings.setting(path, name)[1], lambda _: readings.setting(path, name)[0], spelled)

    settings = {name: setting(name, spelled) for name, spelled in about["spelled"].items()}
    return Rule(about["kind"], lambda _: readings.units(path), settings)


def _forward(name: str, parameters: list[tuple[Any, ...]] | None, returned: Any) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        msg = "the forward of a remote module runs in its worker only"
        raise TypeError(msg)

    forward.__name__ = forward.__qualname__ = name
    empty = inspect.Parameter.empty
    if parameters is None:
        return forward
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name, inspect._ParameterKind(kind), default=(*default, empty)[0], annotation=(*noted, empty)[0]
            )
            for name, kind, default, noted in parameters
        ],
        return_annotation=(*returned, empty)[0],
    )
    return forward


class RemoteFunction:
    """Call a function of the user's there, on what the model gave."""

    def __init__(self, session: Session, named: tuple[int, str, str], definition: tuple[str, int] | None) -> None:
        self._session = session
        self._there = session.object(named)
        self.definition = definition

    def __call__(self, *values: Any) -> Any:
        """Return what it returns."""
        return self._session.value(self._session.request("call", self._there, values))


class RemoteModel(Model):
    """Wrap the stand-in of a module as a model."""

    adapter: RemoteAdapter

    def __init__(self, native: StandIn, adapter: RemoteAdapter) -> None:
        super().__init__(native, adapter)
        self._session = session = adapter.session
        self._there = session.object(session.request("wrap", native))
        self._readings = Readings(session, self._there)
        self._modules: dict[str, RemoteModule] = {}

    def modules(self) -> Mapping[str, RemoteModule]:
        """Return every module once, by its first path; the wrappers stay the same from call to call."""
        known, self._modules = self._modules, {}
        rows = [
            (path, self._session.object(named), mode)
            for path, named, mode in self._session.request("modules", self._there)
        ]
        new = [path for path, native, _ in rows if path not in known or known[path].native is not native]
        about = dict(zip(new, self._session.request("described", self._there, new) if new else (), strict=True))
        for path, native, mode in rows:
            module = RemoteModule(path, native, about[path], self._readings) if path in about else known[path]
            module.mode = mode
            self._modules[path] = module
        return self._modules

    def parameters(self) -> Mapping[str, Parameter]:
        """Return every parameter and buffer once."""
        rows, shelf = self._session.request("parameters", self._there), Shelf(self._session)
        found = (RemoteParameter(self._session, about, shelf) for about in rows)
        return {parameter.path: parameter for parameter in found}

    @property
    def device(self) -> str:
        """Return where the parameters lie there."""
        return str(self._session.request("device", self._there))

    def attach(self, listener: Listener) -> Hook:
        """Report every module's calls; of a call that ends only the output is told."""
        session = self._session
        modules: dict[int, _RemoteNode] = {module.native._number: module for module in self.modules().values()}
        session.running.clear()

        def enter(number: int, mode: bool, frames: Any, given: list[Any], named: dict[str, Any], operation: Any) -> Any:
            if operation is not None:
                modules[number] = RemoteOperation(session.object(operation[0]), *operation[1:])
            module = modules[number]
            module.mode = mode
            session.running.append(module.path)
            listener.frames = tuple(Frame(*frame) for frame in frames)
            args = tuple(session.value(about) for about in given)
            return listener.enter(module, args, {name: session.value(about) for name, about in named.items()})

        def leave(number: int, about: Any) -> Any:
            if session.running:
                session.running.pop()
            return listener.leave(modules[number], (), {}, session.value(about))

        numbers = session.callback(enter), session.callback(leave)
        session.wants = None if listener.wants is None else referred(listener.wants, "function")
        session.request("attach", self._there, *numbers, session.wants, self.adapter.operations)
        return _hook(session, *numbers)

    def operating(self) -> RemoteModel:
        """Return the same model, of which its operations are heard too."""
        adapter = copy.copy(self.adapter)
        adapter.operations = True
        return adapter.wrap(self.native)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model there, and run backward from what ``differentiate(output)`` returns here."""
        session, number = self._session, None
        shown: list[Any] = []

        def starts(about: Any) -> list[tuple[Any, Any | None]]:
            assert differentiate is not None
            shown.append(session.value(about))
            return differentiate(shown[0])

        if differentiate is not None:
            number = session.callback(starts)
        try:
            about = session.request("run", self._there, args, dict(kwargs), number)
            return shown[0] if about is None else session.value(about)
        finally:
            session.forget(*() if number is None else (number,))

    def preserved(self) -> AbstractContextManager[None]:
        """Put back on leaving what a run changes there."""
        return self._session.context("preserved", self._there)

    def evaluate(self) -> None:
        """Put every module into evaluation mode there."""
        self._session.request("evaluate", self._there)

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold all floating parameters and buffers in ``dtype`` within."""
        return self._session.context("lifted", self._there, dtype)

    def step(self, optimizer: Any) -> None:
        """Let an optimizer take one step there."""
        self._session.request("step", self._there, optimizer)

    def loss(self, given: Any, side: int) -> Any:
        """Return the loss that a user gave, found in the worker by its name."""
        if given is None:
            return None
        return RemoteFunction(self._session, *self._session.request("function", referred(given, "loss"), side))

    def optimizer(self, given: Any, side: int) -> Any:
        """Return the optimizer that a user gave, found in the worker by its name."""
        session = self._session
        return session.object(session.request("optimizer", referred(given, "optimizer"), side))


class RemoteAdapter(Adapter):
    """Be the adapter of a worker, here."""

    table: Mapping[str, Rule] = {}
    operations = False
    """Whether the models that it wraps tell of their operations too."""

    def __init__(self, session: Session, about: Mapping[str, Any]) -> None:
        self.session = session
        self.name = about["name"]  # type: ignore[misc]
        self.capabilities = about["capabilities"]
        self.machinery = about["machinery"]
        self.library = about["library"]
        self._own = about["own"]

    @property
    def own(self) -> tuple[str, ...]:
        """Return path prefixes of the files of the adapter there."""
        return tuple(self._own)

    def wrap(self, model: Any) -> RemoteModel:
        """Wrap the stand-in of a module."""
        return RemoteModel(model, self)

    def is_tensor(self, value: Any) -> bool:
        """Return whether the value stands for a tensor of this worker's."""
        return isinstance(value, TensorStandIn) and value._session is self.session

    def tensor(self, native: Any) -> Tensor:
        """Wrap the stand-in of a tensor."""
        return RemoteTensor(native)

    def from_numpy(self, array: Array, *, device: str = "cpu", differentiable: bool = False) -> Any:
        """Return the stand-in of a tensor with a copy of the array."""
        given = self.session.unless_read(array)
        return self.session.tensor(self.session.request("from_numpy", given, device, differentiable))

    def seeded(self, seed: int) -> Any:
        """Seed every generator there."""
        return self.session.context("seeded", seed)

    def quiet(self) -> Any:
        """Keep the framework's chatter down there."""
        return self.session.context("quiet")

    def environment(self) -> Mapping[str, str]:
        """Return the worker's environment, and its interpreter."""
        found: dict[str, str] = self.session.request("environment")
        return {**found, "process": self.session.process.python}

    def is_optimizer(self, value: Any) -> bool:
        """Return whether the value stands for something that steps."""
        return isinstance(value, StandIn) and bool(self.session.request("is_optimizer", value))

    def optimizer_settings(self, optimizer: Any) -> Mapping[str, Any]:
        """Return an optimizer's hyper-parameters."""
        found: Mapping[str, Any] = self.session.request("optimizer_settings", optimizer)
        return found
