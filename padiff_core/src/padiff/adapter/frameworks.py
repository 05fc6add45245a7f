"""What adapters have in common whose framework has a tensor class, a module class and an optimizer class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from padiff.adapter._adapter import Adapter, AnyStepListener, StepListener
from padiff.adapter._listening import Hook, Intercept, handed_on
from padiff.adapter._model import Model
from padiff.adapter._tensor import Tensor
from padiff.adapter.dtypes import is_inexact
from padiff.adapter.versions import Offers
from padiff.numerics import Array


class NativeTensor(Tensor):
    """A tensor of which three functions tell what there is to know: subclasses name them, as static methods."""

    __slots__ = ()

    dtype_name: ClassVar[Any]
    """Takes a native tensor, and returns the name of its dtype, as `Tensor.dtype` does."""
    device_name: ClassVar[Any]
    """Returns where it lies, as `Tensor.device` does."""
    array_of: ClassVar[Any]
    """Returns its values, without a copy where possible."""

    @property
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name."""
        name: str = self.dtype_name(self.native)
        return name

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(self.native.shape)

    @property
    def device(self) -> str:
        """Return where it lies."""
        place: str = self.device_name(self.native)
        return place

    def numpy(self) -> Array:
        """Return a snapshot in C order."""
        return np.array(self.view(), order="C")

    def view(self) -> Array:
        """Return the values, without a copy where possible."""
        values: Array = self.array_of(self.native)
        return values


class Tensors(Protocol):
    """A module of functions that make a framework's tensors."""

    def from_array(self, array: Array, device: str = "cpu") -> Any:
        """Return a tensor on a device with a copy of an array, which collects no gradients."""

    def copied(self, native: Any, device: str) -> Any:
        """Return a copy of a tensor on a device, without its history."""

    def leaf(self, native: Any) -> Any:
        """Return a new tensor as one that collects gradients."""


class Optimizers(Protocol):
    """A module of functions that know a framework's optimizers."""

    def is_optimizer(self, value: Any) -> bool:
        """Return whether the value is an optimizer."""

    def step(self, optimizer: Any) -> None:
        """Take one step and clear the gradients."""

    def settings_of(self, optimizer: Any) -> dict[str, Any]:
        """Return the hyper-parameters under common names; empty for a plain callable."""


class Operations(Protocol):
    """What knows a framework's functions."""

    def Calling(self, function: Callable[..., Any]) -> Any:
        """Return a native module that calls a function."""

    def intercept_functions(self, model: Any, intercept: Intercept) -> Hook:
        """Let ``intercept`` be called in place of the framework's functions until the hook is closed."""


class CallsFunction:
    """What makes a framework's class of modules one that calls a function, as a base class before that one."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        super().__init__(**options)
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns."""
        return handed_on(self.function, args, kwargs)

    construct = forward


class FrameworkAdapter(Adapter):
    """An adapter that says which classes are the framework's, and which wrap them."""

    model_class: ClassVar[type[Model]]
    tensor_class: ClassVar[type[Tensor]]
    native_tensor: ClassVar[type]
    tensors: Tensors
    optimizers: Optimizers
    operations: Operations
    """For the capability ``operations`` alone."""
    offers: ClassVar[Offers | None] = None
    """What the installed version has, of a framework whose versions differ in that."""

    def __init__(self) -> None:
        """Raise `AdapterError` where padiff cannot work with that version at all."""
        if self.offers is not None:
            self.offers.check()

    def wrap(self, model: Any) -> Model:
        """Wrap a native model; raises `UnwatchableModel` where hooks on it would be ignored."""
        return self.model_class(model, self)

    def is_tensor(self, value: Any) -> bool:
        """Return whether the value is a native tensor, a parameter among them."""
        return isinstance(value, self.native_tensor)

    def tensor(self, native: Any) -> Tensor:
        """Wrap a native tensor."""
        return self.tensor_class(native)

    def from_numpy(self, array: Array, *, device: str = "cpu", differentiable: bool = False) -> Any:
        """Return a native tensor with a copy of the array; integers never collect gradients."""
        return self.leaf(self.tensors.from_array(np.asarray(array), device), differentiable)

    def convert(self, value: Any, *, device: str, differentiable: bool = False) -> Any:
        """Return a leaf of the inputs as a tensor of its own on the device, where it is array-like."""
        if self.is_tensor(value):
            return self.leaf(self.tensors.copied(value, device), differentiable)
        return super().convert(value, device=device, differentiable=differentiable)

    def leaf(self, native: Any, differentiable: bool) -> Any:
        """Return a new tensor, which collects gradients where that is asked for and its dtype has any."""
        return self.tensors.leaf(native) if differentiable and is_inexact(self.tensor(native).dtype) else native

    def as_module(self, function: Callable[..., Any]) -> Any:
        """Return a native module that calls a function."""
        return self.operations.Calling(function)

    def is_optimizer(self, value: Any) -> bool:
        """Return whether the value is one of the framework's optimizers."""
        return self.optimizers.is_optimizer(value)

    def step(self, optimizer: Any) -> None:
        """Let an optimizer take one step and clear its gradients; simply call a function."""
        if self.is_optimizer(optimizer) or hasattr(optimizer, "step"):
            self.optimizers.step(optimizer)
        else:
            optimizer()

    def optimizer_settings(self, optimizer: Any) -> Mapping[str, Any]:
        """Return an optimizer's hyper-parameters under common names."""
        return self.optimizers.settings_of(optimizer)

    def optimizer_parameters(self, optimizer: Any) -> Iterable[tuple[Any, Mapping[str, Any]]]:
        """Yield what the module's ``parameters_of`` yields, where it has one."""
        known = getattr(self.optimizers, "parameters_of", None)
        found: Iterable[tuple[Any, Mapping[str, Any]]] = () if known is None else known(optimizer)
        return found

    def on_step(self, optimizer: Any, called: StepListener) -> Hook:
        """Call a function in each step that an optimizer takes, or the one inside of it (the module's ``inner``)."""
        inner = getattr(self.optimizers, "inner", None)
        own = optimizer if inner is None else inner(optimizer)
        return self.on_any_step(lambda stepping, gradients: called(gradients) if stepping is own else None)

    def on_any_step(self, called: AnyStepListener) -> Hook:
        """Do what the module's ``on_any_step`` does, where it has one."""
        attach = getattr(self.optimizers, "on_any_step", None)
        return Hook() if attach is None else Hook(attach(called))
