"""Read a model's tensors with their axes in the order that they have in the other model, each value for itself.

One model computes in ``(batch, time, features)``, the other in ``(time, batch, features)``; a convolution of one takes
``(batch, channels, height, width)``, of another ``(batch, height, width, channels)``. A permuted model is the model
itself, but what padiff reads of its tensors, and puts into them, has its axes in the other's order; so nothing else in
padiff needs to know of them.
"""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.adapter import Adapter, Extent, Hook, Listener, Model, Module, Parameter, Tensor
from padiff.adapter.delegating import DelegatingAdapter, DelegatingModel, inner_property
from padiff.kinds import ORDER_SETTINGS
from padiff.numerics import Array
from padiff.paths import joined, last
from padiff.pytree import held_in, leaves
from padiff.recording._live import Live
from padiff.recording._order import Cuts, Order, Orders
from padiff.trace import Call, Cut, Key


def order_of(tensor: Tensor) -> Order | None:
    """Return in which order a tensor is read; None for its own."""
    return tensor.order if isinstance(tensor, _PermutedTensor) else None


def read_as(tensor: Tensor, adapter: Adapter, native: Any) -> Tensor:
    """Return a native tensor that takes the place of another one, read in its order."""
    if isinstance(tensor, _PermutedTensor):
        return tensor.of(native)
    return adapter.tensor(native)


def natively(tensor: Tensor, array: Array) -> Array:
    """Return an array that is like a tensor as padiff reads it, with its axes in the tensor's native order."""
    return tensor.natively(array) if isinstance(tensor, _PermutedTensor) else array


def at_input(adapter: Adapter, call: Call, index: int, array: Array) -> Array:
    """Return an array for an input of a call, with its axes in the native order."""
    order = _order(adapter, call, index)
    return array if order is None else order.natively(array)


def permuted_input(adapter: Adapter, call: Call, index: int, array: Array) -> Array:
    """Return an array that belongs to an input of a call, in native order, as padiff reads it."""
    order = _order(adapter, call, index)
    return array if order is None else order.read(array)


def _order(adapter: Adapter, call: Call, index: int) -> Order | None:
    return adapter.orders.get((*call.key, "input", index)) if isinstance(adapter, _PermutedAdapter) else None


def permuted_model(model: Model, orders: Orders, cuts: Cuts) -> Model:
    """Return a model that reads as the given one does, but for permuted tensors, and parameters that it cuts."""
    return _PermutedModel(model, _PermutedAdapter(model.adapter, orders, Live(model), cuts))


def wrapped(adapter: Adapter, native: Any, call: Call) -> Model:
    """Return what a call of the whole model ran as a model of its own, its tensors permuted as in that call."""
    if isinstance(adapter, _PermutedAdapter):
        return _PermutedModel(adapter.inner.wrap(native), adapter, call)
    return adapter.wrap(native)


class _PermutedModel(DelegatingModel):
    """A model whose tensors are read permuted."""

    adapter: _PermutedAdapter

    def __init__(self, inner: Model, adapter: _PermutedAdapter, top: Call | None = None) -> None:
        super().__init__(inner, adapter)
        self._top = top

    def modules(self) -> Mapping[str, Module]:
        """Return the model's modules: what tells of an order of axes is no difference where these are permuted."""
        return {path: self.adapter.unordered(module) for path, module in self.inner.modules().items()}

    def parameters(self) -> Mapping[str, Parameter]:
        """Return the model's parameters and buffers, cut where they are."""
        cuts, found = self.adapter.cuts, self.inner.parameters()
        if not cuts:
            return found
        return {
            path: _CutParameter(one, cuts[id(one.native)]) if id(one.native) in cuts else one
            for path, one in found.items()
        }

    def attach(self, listener: Listener) -> Hook:
        """Report calls, each tensor permuted as it is at that place."""
        return self.inner.attach(_PermutingListener(listener, self.adapter, self._top))


class _PermutingListener(Listener):
    """What marks for the adapter how each tensor is permuted at the place where a listener is about to see it.

    Of a part of the model, ``top``, the calls are numbered as they are in the whole model's run.
    """

    def __init__(self, listener: Listener, adapter: _PermutedAdapter, top: Call | None) -> None:
        self._listener = listener
        self._adapter = adapter
        self._top = top
        self._ordinals: dict[str, int] = {}
        for call in () if top is None else top.subtree():
            self._ordinals.setdefault(call.path, call.ordinal)
        self._open: list[tuple[Module, Key, list[list[Any]]]] = []

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        path = self._path(module)
        key = path, self._ordinals.get(path, 0)
        self._ordinals[path] = key[1] + 1
        taken = [self._adapter.mark(key, "input", (args, kwargs))]
        self._open.append((module, key, taken))
        changed = self._listener.enter(self._adapter.unordered(module), args, kwargs)
        if changed is not None:
            taken.append(self._adapter.mark(key, "input", changed))
        return changed

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        opened, key, taken = self._open.pop()
        while opened.native is not module.native:
            # A model that catches an exception leaves calls open that never return.
            opened, key, taken = self._open.pop()
        given = () if module.operation else (*args, *kwargs.values())
        held = {str(index): value for index, value in enumerate(given)}
        for given_so in taken:  # calls inside may have read them in another order
            self._adapter.mark(key, "input", given_so)
        self._adapter.mark(key, "output", output, held, taken)
        changed = self._listener.leave(self._adapter.unordered(module), args, kwargs, output)
        if changed is not None:
            self._adapter.mark(key, "output", changed, held, taken)
        return changed

    def fail(self, module: Module) -> None:
        _, (path, _), _ = self._open.pop()
        self._ordinals[path] -= 1
        self._listener.fail(self._adapter.unordered(module))

    def _path(self, module: Module) -> str:
        if not self._open and self._top is not None:
            return self._top.path
        if module.operation and self._open:
            return joined(self._open[-1][1][0], last(module.path))
        return self._adapter.path_of(module)


class _PermutedAdapter(DelegatingAdapter):
    """An adapter that wraps tensors permuted where they are marked so."""

    def __init__(self, inner: Adapter, orders: Orders, live: Live, cuts: Cuts) -> None:
        super().__init__(inner)
        self.orders = orders
        self.cuts = {id(live.parameters[path].native): cut for path, cut in cuts.items()}
        """Live parameter, by id -> what is read of it."""
        self._live = live
        self._marks: dict[int, tuple[Callable[[], Any], Order]] = {}
        self._permuted = {path for (path, *_), order in orders.items() if order.reorders}
        self._unordered: dict[Module, Module] = {}

    def path_of(self, module: Module) -> str:
        """Return the path of a module in the whole model."""
        return self._live.path_of(module)

    def unordered(self, module: Module) -> Module:
        """Return a module without the settings that say in which order it takes axes, where these are permuted."""
        rule = module.rule
        if rule is None or ORDER_SETTINGS.isdisjoint(rule.settings) or self.path_of(module) not in self._permuted:
            return module
        known = self._unordered.get(module)
        if known is None:
            known = self._unordered[module] = copy.copy(module)
            rest = {name: setting for name, setting in rule.settings.items() if name not in ORDER_SETTINGS}
            known.rule = attrs.evolve(rule, settings=rest)
        return known

    def mark(
        self, key: Key, what: str, value: Any, held: Mapping[str, Any] | None = None, taken: Sequence[list[Any]] = ()
    ) -> list[Any]:
        """Remember how the tensors of one place are permuted; return them.

        Behind what a call returns stands what it left in what it was given, ``held``, and did not take, ``taken``.
        """
        natives = [native for _, native in leaves(value, self.inner.is_tensor)]
        known = {id(native) for native in itertools.chain(natives, *taken)}
        for _, native in held_in(held or {}, self.inner.is_tensor):
            if id(native) not in known:
                known.add(id(native))
                natives.append(native)
        for index, native in enumerate(natives):
            identity = self.inner.tensor(native).identity
            order = self.orders.get((*key, what, index))
            if order is None:
                self._marks.pop(id(identity), None)
            else:
                self._marks[id(identity)] = weak(identity), order
        return natives

    def tensor(self, native: Any) -> Tensor:
        plain = self.inner.tensor(native)
        known = self._marks.get(id(plain.identity))
        if known is None or known[0]() is not plain.identity:
            return plain
        return _PermutedTensor(plain, known[1], self.inner)


def weak(identity: Any) -> Callable[[], Any]:
    """Return what gives an object as long as it is alive; one that cannot be referred to weakly is kept."""
    try:
        return weakref.ref(identity)
    except TypeError:
        return lambda: identity


class _PermutedTensor(Tensor):
    """A tensor whose axes are read in another order."""

    __slots__ = ("_adapter", "inner", "order")

    identity, dtype, device = inner_property("identity"), inner_property("dtype"), inner_property("device")
    place, version = inner_property("place"), inner_property("version")
    differentiable = inner_property("differentiable")

    def __init__(self, inner: Tensor, order: Order, adapter: Adapter) -> None:
        super().__init__(inner.native)
        self.inner = inner
        self.order = order
        self._adapter = adapter

    def of(self, native: Any) -> Tensor:
        """Return another tensor, read in this one's order."""
        return _PermutedTensor(self._adapter.tensor(native), self.order, self._adapter)

    def natively(self, array: Array) -> Array:
        """Return an array of this shape in the native order of axes; what was cut off is zero."""
        return np.ascontiguousarray(self.order.natively(array))

    def _over(self, array: Array) -> Array:
        """Return it so, what was cut off as it is."""
        return np.ascontiguousarray(self.order.over(array, self.inner.view))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.order.shape(self.inner.shape)

    def numpy(self) -> Array:
        return np.ascontiguousarray(self.order.read(self.inner.numpy()))

    def view(self) -> Array:
        return self.order.read(self.inner.view())

    def extent(self) -> Extent | None:
        return self.inner.extent()

    def overwrite(self, array: Array) -> bool:
        return self.inner.overwrite(self._over(array))

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        def arrived(gradient: Tensor) -> Any | None:
            other = callback(_PermutedTensor(gradient, self.order, self._adapter))
            if other is None:
                return None
            values = self.natively(self._adapter.tensor(other).view())
            return self._adapter.from_numpy(values, device=gradient.device)

        return self.inner.on_gradient(arrived)

    def swapped(self, array: Array) -> Any:
        return self.inner.swapped(self._over(array))


class _CutParameter(Parameter):
    """A parameter of which some rows are read and written, and the others stay; their gradient is zero."""

    dtype, trainable = inner_property("dtype"), inner_property("trainable")

    def __init__(self, inner: Parameter, cut: Cut) -> None:
        super().__init__(inner.path, inner.native, buffer=inner.buffer, paths=inner.paths)
        self.inner, self._cut = inner, cut

    @property
    def shape(self) -> tuple[int, ...]:
        return self._cut.shape(self.inner.shape)

    def view(self) -> Array:
        return self._cut.read(self.inner.view())

    def extent(self) -> Extent | None:
        return self.inner.extent()

    def assign(self, array: Array) -> None:
        whole = np.array(self.inner.view())
        self._cut.read(whole)[...] = self.fitting(array)
        self.inner.assign(whole)

    def gradient(self) -> Array | None:
        gradient = self.inner.gradient()
        return None if gradient is None else self._cut.read(gradient)

    def set_gradient(self, array: Array | None) -> None:
        self.inner.set_gradient(None if array is None else self._cut.filled(array))
