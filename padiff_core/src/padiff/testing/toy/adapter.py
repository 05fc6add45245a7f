"""Know the toy framework: one adapter for each of its dialects."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from padiff.adapter import (
    Adapter,
    AnyStepListener,
    Hook,
    Intercept,
    Listener,
    Model,
    Module,
    Parameter,
    StepListener,
    Tensor,
    host_random_state,
    replaced,
)
from padiff.adapter.interception import Detour
from padiff.errors import InputError, LiftError, UnwatchableModel
from padiff.kinds import Rule
from padiff.numerics import Array
from padiff.testing.toy import _module, _tape, columns, functional, rows
from padiff.testing.toy._tables import COLUMNS, ROWS
from padiff.testing.toy._values import ToyParameter, ToyTensor

__all__ = ["DTYPES", "ColumnsAdapter", "RowsAdapter", "ToyAdapter", "ToyModel"]

DTYPES = ("bool", "int32", "int64", "float16", "float32", "float64", "bfloat16")
"""What the toy framework holds."""


class ToyModule(Module):
    """A module, wrapped."""

    @property
    def training(self) -> bool:
        """Return the mode."""
        return bool(self.native.training)

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the bound ``forward``."""
        return self.native.forward  # type: ignore[no-any-return]


class ToyModel(Model):
    """A model, wrapped."""

    adapter: ToyAdapter

    def __init__(self, native: Any, adapter: Adapter) -> None:
        super().__init__(native, adapter)
        self._wrapped: dict[Any, ToyModule] = {}

    def modules(self) -> Mapping[str, Module]:
        """Return every module once, by its first path."""
        found: dict[str, Module] = {}
        for path, module in self.native.walk():
            if module not in self._wrapped:
                self._wrapped[module] = ToyModule(path, module, self.adapter.rule(module))
            found.setdefault(self._wrapped[module].path, self._wrapped[module])
        return found

    def parameters(self) -> Mapping[str, Parameter]:
        """Return every parameter and buffer once, by its first path."""
        paths: dict[Any, list[str]] = {}
        for prefix, module in self.native.walk():
            for name, tensor in module.tensors().items():
                paths.setdefault(tensor, []).append(f"{prefix}.{name}" if prefix else name)
        return {
            names[0]: ToyParameter(names[0], tensor, buffer=tensor.role == "buffer", paths=tuple(names))
            for tensor, names in paths.items()
        }

    def attach(self, listener: Listener) -> Hook:
        """Report every module's calls."""
        hook = Hook()
        for module in self.modules().values():
            pair = functools.partial(_enter, listener, module), functools.partial(_leave, listener, module)
            module.native.hooks.append(pair)
            hook.add(functools.partial(module.native.hooks.remove, pair))
        return hook

    def intercept_operations(self, intercept: Intercept) -> Hook:
        """Let ``intercept`` be called in place of functions and of tensors' methods."""
        return self.adapter.detour().open(intercept, [module.native for module in self.modules().values()])

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model, and run backward from what ``differentiate(output)`` returns."""
        for tensor in self.native.parameters():
            tensor.grad = None
        output = self.native(*args, **kwargs)
        if differentiate is not None:
            starts = differentiate(output)
            _tape.backward([(tensor, np.ones_like(tensor.data) if g is None else g.data) for tensor, g in starts])
        return output

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put back attributes, modes, buffers, gradients and what is trainable."""
        modules = {module: dict(vars(module)) for _, module in self.native.walk()}
        tensors = {tensor: None for module in modules for tensor in module.tensors().values()}
        before = [(tensor, tensor.step, tensor.grad, tensor.requires_grad, tensor.data) for tensor in tensors]
        buffers = [(tensor, tensor.data.copy()) for tensor in tensors if tensor.role == "buffer"]
        try:
            yield
        finally:
            for module, attributes in modules.items():
                vars(module).clear()
                vars(module).update(attributes)
            for tensor, step, gradient, trainable, data in before:
                tensor.step, tensor.requires_grad, tensor.data = step, trainable, data
                tensor.grad = gradient
            for tensor, values in buffers:
                tensor.data[...] = values

    def evaluate(self) -> None:
        """Put every module into evaluation mode."""
        self.native.train(False)

    @contextmanager
    def lifted(self, dtype: str) -> Iterator[None]:
        """Hold parameters and buffers in a wider dtype."""
        if dtype not in ("float32", "float64"):
            msg = f"the toy framework computes in float64 at most, not in {dtype}\nHint: lift to float64"
            raise LiftError(msg)
        target = np.dtype(dtype)
        natives = [parameter.native for parameter in self.parameters().values()]
        before = [(native, native.data, native.grad) for native in natives if "float" in native.dtype]
        try:
            for native, data, _ in before:
                if data.dtype.itemsize < target.itemsize:
                    native.data, native.grad = data.astype(target), None
            yield
        finally:
            for native, data, gradient in before:
                native.data, native.grad = data, gradient


class ToyAdapter(Adapter):
    """A dialect; subclasses say which."""

    capabilities = frozenset(
        ["gradients", "float64", "in-place", "buffers", "modes", "randomness", "freezing", "optimizers", "operations"]
    )
    machinery = (__file__, str(_module.__file__))
    library = (os.path.join(os.path.dirname(__file__), ""),)
    dialect: ClassVar[Any]
    base: ClassVar[type]

    @classmethod
    @functools.cache
    def detour(cls) -> Detour:
        """Return what stands in for the functions while someone listens."""
        return Detour({"toy.Tensor": cls.dialect.Tensor, "toy.functional": functional})

    def wrap(self, model: Any) -> Model:
        """Wrap a module of the dialect."""
        if not isinstance(model, self.base):
            msg = f"{type(model).__qualname__} is no {self.base.__module__}.{self.base.__qualname__}"
            msg += "\nHint: pass the module itself"
            raise UnwatchableModel(msg)
        return ToyModel(model, self)

    def random_state(self) -> Hashable:
        """Return the state of the generators of Python and numpy: there are no others."""
        return host_random_state()

    def backward_pass(self) -> int | None:
        """Return the number of the backward pass that runs."""
        return _tape.backward_pass()

    def is_tensor(self, value: Any) -> bool:
        """Return whether the value is a tensor of the dialect."""
        return isinstance(value, self.dialect.Tensor)

    def tensor(self, native: Any) -> Tensor:
        """Wrap a tensor."""
        return ToyTensor(native)

    def from_numpy(self, array: Array, *, device: str = "cpu", differentiable: bool = False) -> Any:
        """Return a tensor with a copy of the array."""
        name = array.dtype.name
        if name not in DTYPES:
            msg = f"the toy framework has no dtype {name}\nHint: convert it to one of {', '.join(DTYPES)}"
            raise InputError(msg)
        data = np.array(array, np.dtype(getattr(ml_dtypes, name, name)), order="C")
        return self.dialect.Tensor(data, requires_grad=differentiable and "float" in name)

    def as_module(self, function: Callable[..., Any]) -> Any:
        """Return a module that calls a function."""
        module = self.base()
        vars(module)["forward"] = function
        return module

    def environment(self) -> Mapping[str, str]:
        """Return the versions."""
        return {self.name: self.dialect.__version__, "numpy": np.__version__}

    def is_optimizer(self, value: Any) -> bool:
        """Return whether the value is an optimizer."""
        return isinstance(value, rows.SGD)

    def step(self, optimizer: Any) -> None:
        """Take one step and clear the gradients."""
        if not self.is_optimizer(optimizer):
            optimizer()
            return
        optimizer.step()
        optimizer.clear()

    def optimizer_settings(self, optimizer: Any) -> Mapping[str, Any]:
        """Return the hyper-parameters."""
        if not self.is_optimizer(optimizer):
            return {}
        cls = type(optimizer)
        named = "sgd" if cls.__module__.startswith("padiff.") else cls.__name__.lower()
        told = ("lr", "momentum", "weight_decay", "clip")
        return {"class": named, **{name: getattr(optimizer, name) for name in told if hasattr(optimizer, name)}}

    def optimizer_parameters(self, optimizer: Any) -> Iterable[tuple[Any, Mapping[str, Any]]]:
        """Yield each parameter that is stepped, with the hyper-parameters."""
        settings = self.optimizer_settings(optimizer)
        yield from ((tensor, settings) for tensor in (optimizer.parameters if settings else ()))

    def on_step(self, optimizer: Any, called: StepListener) -> Hook:
        """Call a function before each step."""
        return self._told(optimizer, lambda _, gradients: called(gradients))

    def on_any_step(self, called: AnyStepListener) -> Hook:
        """Call a function before each step of an optimizer of the framework's class, whatever its own class does."""
        return self._told(rows.SGD, called)

    def _told(self, owner: Any, called: AnyStepListener) -> Hook:
        plain = owner.step

        def step(*own: Any) -> None:
            one = own[0] if own else owner
            held = (tensor for tensor in one.parameters if tensor.grad is not None)
            called(one, ((tensor, self.dialect.Tensor(tensor.grad)) for tensor in held))
            plain(*own)

        hook = ExitStack()
        hook.enter_context(replaced(owner, "step", step))
        return Hook(hook.close)


class RowsAdapter(ToyAdapter):
    """The dialect of `padiff.testing.toy.rows`."""

    name = "toy"
    table: Mapping[str, Rule] = ROWS
    dialect: ClassVar[Any] = rows
    base = rows.Module


class ColumnsAdapter(ToyAdapter):
    """The dialect of `padiff.testing.toy.columns`."""

    name = "toy_t"
    table: Mapping[str, Rule] = COLUMNS
    dialect: ClassVar[Any] = columns
    base = columns.Layer


def _enter(listener: Listener, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return listener.enter(module, args, kwargs)


def _leave(listener: Listener, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    return listener.leave(module, args, kwargs, output)
