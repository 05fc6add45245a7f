"""Wrap the nodes of a model's tree, and its parameters."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from padiff.adapter._info import offered_not
from padiff.adapter._memory import Extent, extent_of, fitted
from padiff.adapter._reduction import Reducer, Reduction
from padiff.errors import NotOffered
from padiff.kinds import Rule
from padiff.numerics import Array


def qualified_name(native: Any) -> str:
    """Return the qualified name of an object's class."""
    return _name(type(native))


def class_names(native: Any) -> tuple[str, ...]:
    """Return the qualified names of an object's class and of those that it inherits from."""
    return tuple(map(_name, type(native).__mro__))


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class Parameter(ABC):
    """A parameter or buffer of a model, wrapped.

    What is not abstract needs to be overridden for a capability only: ``trainable`` for ``freezing``, ``gradient``
    and ``set_gradient`` for ``gradients``.
    """

    def __init__(self, path: str, native: Any, *, buffer: bool, paths: tuple[str, ...] = ()) -> None:
        self.path = path
        self.native = native
        self.buffer = buffer
        self.paths = paths or (path,)
        """Every path under which the same native object hangs: more than one where weights are tied."""

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Return the dtype's name, as `Tensor.dtype`."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the native shape."""

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient; a buffer never does."""
        return not self.buffer

    def thaw(self) -> None:
        """Let it get a gradient though it is frozen, until `Model.preserved` is left; here nothing happens."""
        return

    @abstractmethod
    def view(self) -> Array:
        """Return the values, native layout, without a copy where possible; never write to it or keep it."""

    def extent(self) -> Extent | None:
        """Return the addresses of its values, in the parameter's own process."""
        return extent_of(self.view())

    @abstractmethod
    def assign(self, array: Array) -> None:
        """Overwrite the values in place: same shape, converted to the dtype, seen by optimizers too."""

    def fitting(self, array: Array) -> Array:
        """Return an array in the parameter's dtype; raises ``ValueError`` for another shape, which is never bent."""
        return fitted(array, self.shape, self.dtype, repr(self.path))

    def reduce(self, reducer: Reducer, reduction: Reduction, *, steady: bool = False) -> bool:
        """Let few numbers be computed where the value lies, as `Reducer.add` says."""
        return False

    def gradient(self) -> Array | None:
        """Return the gradient (no copy where possible), dense, or None where there is none."""
        return None

    def set_gradient(self, array: Array | None) -> None:
        """Set the gradient that the next optimizer step reads, or remove it."""
        raise NotOffered(offered_not(f"the parameter {self.path!r} was given a gradient", "gradients"))


class Module(ABC):
    """A node of a model's tree, wrapped."""

    operation: bool = False
    """Whether it is no module of the model, but a function that a module's own code calls."""
    memory: str = "own"
    """Where what it gives lies: in memory of its ``own``, or in that of its input, as a ``view`` or the ``same``."""

    def __init__(self, path: str, native: Any, rule: Rule | None) -> None:
        self.path = path
        self.native = native
        self.rule = rule

    @property
    def kind(self) -> str | None:
        """Return the kind's name, or None outside the catalogue."""
        return self.rule.kind if self.rule else None

    @property
    def class_name(self) -> str:
        """Return the native class's qualified name."""
        return qualified_name(self.native)

    @property
    def training(self) -> bool:
        """Return whether the module is in training mode; False where there are no modes."""
        return False

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the qualified names of the native class and of those that it inherits from."""
        return class_names(self.native)[:-1]

    def is_a(self, cls: type | str) -> bool:
        """Return whether the module is of a class, or of a class of that name, qualified or bare."""
        if isinstance(cls, type):
            return isinstance(self.native, cls)
        names = ((one.__module__, one.__qualname__) for one in type(self.native).__mro__)
        return any(cls in (name, f"{module}.{name}") for module, name in names)

    @property
    @abstractmethod
    def forward(self) -> Callable[..., Any]:
        """Return the bound method that users override (forward, construct, ...)."""

    @property
    def definition(self) -> tuple[str, int] | None:
        """Return file and line where the module's forward is defined."""
        function = inspect.unwrap(self.forward)
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        return (code.co_filename, code.co_firstlineno) if code else None
