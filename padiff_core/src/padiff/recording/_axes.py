"""Read a model's tensors with their channels where the other model has them: first, or last.

A convolution of one framework takes ``(batch, channels, height, width)``, of another ``(batch, height, width,
channels)``. A turned model is the model itself, but what padiff reads of its tensors, and puts into them, has its axes
in the other's order; so nothing else in padiff needs to know of layouts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Adapter, Extent, Hook, Listener, Model, Module, Tensor
from padiff.adapter.delegating import DelegatingAdapter, DelegatingModel
from padiff.kinds import LAYOUT
from padiff.pytree import leaves
from padiff.recording._live import Live

__all__ = ["Axes", "Turns", "at_input", "natively", "turned", "turned_input"]

Array = NDArray[Any]
Axes = tuple[int, ...]
"""The permutation that takes a native array to the other model's order, as numpy's transpose does."""
Turns = Mapping[tuple[str, str, int], Axes]
"""(path of a module, ``input`` or ``output``, index of the tensor) -> how it is turned there."""


def natively(tensor: Tensor, array: Array) -> Array:
    """Return an array that is like a tensor as padiff reads it, with its axes in the tensor's native order."""
    return tensor.natively(array) if isinstance(tensor, _TurnedTensor) else array


def at_input(adapter: Adapter, path: str, index: int, array: Array) -> Array:
    """Return an array for an input of the module at a path, with its axes in the native order."""
    axes = _axes(adapter, path, index)
    return array if axes is None else array.transpose(np.argsort(axes))


def turned_input(adapter: Adapter, path: str, index: int, array: Array) -> Array:
    """Return an array that belongs to an input of the module at a path, in native order, as padiff reads it."""
    axes = _axes(adapter, path, index)
    return array if axes is None else array.transpose(axes)


def _axes(adapter: Adapter, path: str, index: int) -> Axes | None:
    return adapter.turns.get((path, "input", index)) if isinstance(adapter, _TurnedAdapter) else None


def turned(model: Model, turns: Turns) -> Model:
    """Return a model that reads as the given one does, but for the tensors that are turned."""
    return _TurnedModel(model, _TurnedAdapter(model.adapter, turns, Live(model)))


class _TurnedModel(DelegatingModel):
    """Be a model whose tensors are read turned."""

    adapter: _TurnedAdapter

    def __init__(self, inner: Model, adapter: _TurnedAdapter) -> None:
        super().__init__(inner, adapter)
        for module in inner.modules().values():
            # What is turned is no difference any more.
            if module.rule is not None and LAYOUT in module.rule.settings:
                rest = {name: setting for name, setting in module.rule.settings.items() if name != LAYOUT}
                module.rule = attrs.evolve(module.rule, settings=rest)

    def attach(self, listener: Listener) -> Hook:
        """Report calls, each tensor turned as it is at that place."""
        return self.inner.attach(_Turner(listener, self.adapter))


class _Turner(Listener):
    """Tell the adapter how each tensor is turned at the place where a listener is about to see it."""

    def __init__(self, listener: Listener, adapter: _TurnedAdapter) -> None:
        self._listener = listener
        self._adapter = adapter

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        self._adapter.mark(module, "input", (args, kwargs))
        changed = self._listener.enter(module, args, kwargs)
        if changed is not None:
            self._adapter.mark(module, "input", changed)
        return changed

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        self._adapter.mark(module, "output", output)
        changed = self._listener.leave(module, args, kwargs, output)
        if changed is not None:
            self._adapter.mark(module, "output", changed)
        return changed


class _TurnedAdapter(DelegatingAdapter):
    """Be an adapter that wraps tensors turned where they are marked so."""

    def __init__(self, inner: Adapter, turns: Turns, live: Live) -> None:
        super().__init__(inner)
        self.turns = turns
        self._live = live
        self._marks: dict[int, tuple[Callable[[], Any], Axes]] = {}

    def mark(self, module: Module, what: str, value: Any) -> None:
        """Remember how the tensors of one place are turned."""
        path = self._live.path_of(module)
        for index, (_, native) in enumerate(leaves(value, self.inner.is_tensor)):
            identity = self.inner.tensor(native).identity
            axes = self.turns.get((path, what, index))
            if axes is None:
                self._marks.pop(id(identity), None)
            else:
                self._marks[id(identity)] = _weak(identity), axes

    def tensor(self, native: Any) -> Tensor:
        plain = self.inner.tensor(native)
        known = self._marks.get(id(plain.identity))
        if known is None or known[0]() is not plain.identity:
            return plain
        return _TurnedTensor(plain, known[1], self.inner)

    def wrap(self, model: Any) -> Model:
        return _TurnedModel(self.inner.wrap(model), self)


def _weak(identity: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(identity)
    except TypeError:
        return lambda: identity


class _TurnedTensor(Tensor):
    """Be a tensor whose axes are read in another order."""

    __slots__ = ("_adapter", "_axes", "_inner", "_inverse")

    def __init__(self, inner: Tensor, axes: Axes, adapter: Adapter) -> None:
        super().__init__(inner.native)
        self._inner = inner
        self._axes = axes
        self._inverse = tuple(np.argsort(axes).tolist())
        self._adapter = adapter

    def natively(self, array: Array) -> Array:
        """Return an array of this shape in the native order of axes."""
        return np.ascontiguousarray(array.transpose(self._inverse))

    @property
    def identity(self) -> Any:
        return self._inner.identity

    @property
    def dtype(self) -> str:
        return self._inner.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        native = self._inner.shape
        return tuple(native[axis] for axis in self._axes)

    @property
    def device(self) -> str:
        return self._inner.device

    @property
    def version(self) -> int:
        return self._inner.version

    @property
    def differentiable(self) -> bool:
        return self._inner.differentiable

    def numpy(self) -> Array:
        return np.ascontiguousarray(self._inner.numpy().transpose(self._axes))

    def view(self) -> Array:
        return self._inner.view().transpose(self._axes)

    def writable(self) -> Array | None:
        memory = self._inner.writable()
        return None if memory is None else memory.transpose(self._axes)

    def extent(self) -> Extent | None:
        return self._inner.extent()

    def overwrite(self, array: Array) -> bool:
        return self._inner.overwrite(self.natively(array))

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        def hear(gradient: Tensor) -> Any | None:
            other = callback(_TurnedTensor(gradient, self._axes, self._adapter))
            if other is None:
                return None
            values = self.natively(self._adapter.tensor(other).view())
            return self._adapter.from_numpy(values, device=gradient.device)

        return self._inner.on_gradient(hear)

    def swapped(self, array: Array) -> Any:
        return self._inner.swapped(self.natively(array))
