"""Wrap Paddle models: the tree, the parameters, hooks, runs, and what is put back after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle.base import core
from paddle.jit.dy2static.program_translator import ASTStaticFunction, StaticFunction

from padiff.adapter import Adapter, Hear, Hook, Listener, Model, Module, Parameter
from padiff.errors import InputError, LiftError, UnwatchableModel
from padiff.pytree import leaves
from padiff_paddle.kinds import STATISTICS
from padiff_paddle.operations import hear_functions
from padiff_paddle.tensor import array_of, device_of, dtype_of, from_array, is_inexact, numpy_dtype, relayed

__all__ = ["PaddleModel", "PaddleModule", "PaddleParameter"]

Array = NDArray[Any]

_COMPLEX = {"float32": "complex64", "float64": "complex128"}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, paddle.Tensor)


def _named(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


class PaddleParameter(Parameter):
    """Wrap one parameter or buffer of a layer."""

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return dtype_of(self.native)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the native shape."""
        return tuple(self.native.shape)

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient."""
        return not self.native.stop_gradient and not self.buffer

    def view(self) -> Array:
        """Return the values in native layout, read-only, without a copy on the CPU."""
        return array_of(self.native)

    def assign(self, array: Array) -> None:
        """Overwrite the values in place; Paddle itself would take another shape silently."""
        source = self._fitting(array)
        with paddle.no_grad():
            self.native.copy_(source, True)

    def gradient(self) -> Array | None:
        """Return the gradient, dense, or None."""
        gradient = self.native.grad
        return None if gradient is None else array_of(gradient)

    def set_gradient(self, array: Array | None) -> None:
        """Set the gradient that the next optimizer step reads, or remove it."""
        source = None if array is None else self._fitting(array)
        self.native.clear_gradient(False)
        if source is not None:
            self.native.grad = source

    def _fitting(self, array: Array) -> Any:
        """Return the array as a tensor of this parameter's dtype and device; its shape must be the same."""
        if array.shape != self.shape:
            msg = f"an array of shape {array.shape} does not fit {self.path!r} of shape {self.shape}"
            raise ValueError(msg)
        return from_array(array.astype(numpy_dtype(self.dtype), copy=False), device_of(self.native))


class PaddleModule(Module):
    """Wrap one ``paddle.nn.Layer``."""

    @property
    def training(self) -> bool:
        """Return whether the layer is in training mode."""
        return bool(self.native.training)

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the forward that the user wrote, also where ``to_static`` wraps it."""
        forward: Callable[..., Any] = self.native.forward
        return forward.dygraph_function if isinstance(forward, StaticFunction) else forward


class PaddleModel(Model):
    """Wrap one ``paddle.nn.Layer`` as a model."""

    def __init__(self, native: Any, adapter: Adapter) -> None:
        super().__init__(native, adapter)
        self._modules: dict[str, PaddleModule] = {}
        _check(native)

    def modules(self) -> Mapping[str, PaddleModule]:
        """Return every layer once, by its first path, parents first; wrappers stay the same over calls."""
        known, self._modules = self._modules, {}
        for path, layer in self.native.named_sublayers(include_self=True):
            old = known.get(path)
            keep = old is not None and old.native is layer
            self._modules[path] = old if keep and old else PaddleModule(path, layer, self.adapter.rule(layer))
        return self._modules

    def parameters(self) -> Mapping[str, PaddleParameter]:
        """Return every parameter and buffer once, but for those without memory (an LSTM's dropout state)."""
        natives: dict[int, Any] = {}
        paths: dict[int, list[str]] = {}
        buffers: set[int] = set()
        for path, layer in _walk(self.native):
            statistics = _statistics(layer)
            for table, all_buffers in ((layer._parameters, False), (layer._buffers, True)):
                for name, native in table.items():
                    if native is None or not native._is_initialized():
                        continue
                    natives[id(native)] = native
                    paths.setdefault(id(native), []).append(f"{path}.{name}" if path else name)
                    if all_buffers or name in statistics:
                        buffers.add(id(native))
        return {
            paths[key][0]: PaddleParameter(paths[key][0], native, buffer=key in buffers, paths=tuple(paths[key]))
            for key, native in natives.items()
        }

    @property
    def device(self) -> str:
        """Return where the parameters lie."""
        return ",".join(sorted({device_of(item.native) for item in self.parameters().values()})) or "cpu"

    def attach(self, listener: Listener) -> Hook:
        """Report every layer's calls, but for those that recomputation repeats in the backward pass.

        The hooks stand behind the user's own: they hear what ``forward`` gets and what the caller gets.
        """
        hook = Hook()
        for module in self.modules().values():
            layer = module.native
            before, after = partial(_enter, listener, module), partial(_leave, listener, module)
            hook.add(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
            hook.add(layer.register_forward_post_hook(after, with_kwargs=True).remove)
        return hook

    def hear_operations(self, hear: Hear) -> Hook:
        """Let ``hear`` be called in place of Paddle's functions until the hook is closed."""
        return hear_functions(self.native, hear)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model, and run backward from what ``differentiate(output)`` returns; return the output."""
        for parameter in self.parameters().values():
            if parameter.native.is_leaf:
                parameter.native.clear_gradient(False)
        with paddle.enable_grad():
            output = self.native(*args, **kwargs)
            if differentiate is not None:
                _backward(differentiate(output))
        return output

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put back gradients, ``stop_gradient``, modes, plain attributes, and buffers bit for bit."""
        parameters = [item.native for item in self.parameters().values()]
        flags = [(native, native.stop_gradient) for native in parameters]
        layers = [layer for _, layer in self.native.named_sublayers(include_self=True)]
        modes = [(layer, layer.training) for layer in layers]
        attributes = [_Attributes(layer) for layer in layers]
        with paddle.no_grad():
            values = [(item.native, item.native.detach().clone()) for item in self.parameters().values() if item.buffer]
        gradients = _Gradients(parameters)
        try:
            yield
        finally:
            for kept in attributes:
                kept.restore()
            with paddle.no_grad():
                for native, value in values:
                    native.copy_(value, True)
            for layer, mode in modes:
                layer.training = mode
            for native, flag in flags:
                native.stop_gradient = flag
            gradients.restore()

    def evaluate(self) -> None:
        """Put every layer into evaluation mode."""
        self.native.eval()

    @contextmanager
    def lifted(self, dtype: str) -> Iterator[None]:
        """Hold all floating tensors of the model in ``dtype``; put the old storage back after.

        The values under each tensor object are exchanged, as ``Layer.to`` does, so tied parameters, an LSTM's
        list of weights and tensors in plain attributes all follow. Paddle's default dtype follows too, for
        constants that a forward makes.
        """
        if dtype not in _COMPLEX:
            msg = f"cannot lift a Paddle model to {dtype!r}; known are {', '.join(_COMPLEX)}"
            raise LiftError(msg)
        layers = [layer for _, layer in self.native.named_sublayers(include_self=True)]
        natives = {id(native): native for layer in layers for native in _tensors(layer)}
        gradients = _Gradients(list(natives.values()))
        marks = [(layer, layer._dtype) for layer in layers]
        default = paddle.get_default_dtype()
        kept: list[tuple[Any, Any]] = []
        try:
            gradients.drop()
            for native in natives.values():
                kept.append((native, _storage(native)))
                _cast(native, _COMPLEX[dtype] if dtype_of(native).startswith("complex") else dtype)
            for layer in layers:
                layer._dtype = dtype
            paddle.set_default_dtype(dtype)
            yield
        finally:
            paddle.set_default_dtype(default)
            for layer, mark in marks:
                layer._dtype = mark
            gradients.drop()
            for native, storage in kept:
                native.get_tensor()._share_data_with(storage)
            gradients.restore()


def _check(native: Any) -> None:
    """Raise `UnwatchableModel` where hooks on this model would never run, or run once on symbols."""
    if isinstance(native, paddle.Model):
        msg = f"{_named(native)} is a trainer around a model.\nHint: pass its .network."
        raise UnwatchableModel(msg)
    if not isinstance(native, paddle.nn.Layer):
        msg = f"{_named(native)} is no paddle.nn.Layer: it has no calls to watch.\nHint: pass the Layer itself."
        raise UnwatchableModel(msg)
    if not paddle.in_dynamic_mode():
        msg = f"{_named(native)} would run in static mode, where hooks see no values.\n"
        msg += "Hint: call paddle.disable_static() first."
        raise UnwatchableModel(msg)
    for path, layer in native.named_sublayers(include_self=True):
        where = f"{_named(layer)} at {path!r}" if path else _named(layer)
        if type(layer).__name__ in {"TranslatedLayer", "PirTranslatedLayer"}:
            msg = f"{where} was loaded by paddle.jit.load: one program without layers to watch.\n"
            msg += "Hint: build the model from its class and load its parameters with set_state_dict."
            raise UnwatchableModel(msg)
        if isinstance(layer.forward, ASTStaticFunction):
            msg = f"{where} runs through paddle.jit.to_static(full_graph=True): hooks run once, at tracing.\n"
            msg += "Hint: build it without to_static or with full_graph=False, or call .forward.rollback()."
            raise UnwatchableModel(msg)
    _check_built(native)


def _check_built(native: Any) -> None:
    """Raise `InputError` where parameters have no values yet; to Paddle they are merely empty."""
    for path, layer in native.named_sublayers(include_self=True):
        for name, parameter in layer._parameters.items():
            lazy = getattr(parameter, "_init_func", None) is not None
            if lazy and not parameter._is_initialized():
                msg = f"{f'{path}.{name}' if path else name!r} has no values yet: it was made under "
                msg += "paddle.LazyGuard.\nHint: call .initialize() on every parameter before the diff."
                raise InputError(msg)


def _walk(layer: Any, path: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every layer under every path, parents first."""
    yield path, layer
    for name, child in layer._sub_layers.items():
        if child is not None and id(child) not in above:
            yield from _walk(child, f"{path}.{name}" if path else name, (*above, id(layer)))


def _statistics(layer: Any) -> frozenset[str]:
    """Return which of a layer's parameters are buffers by nature."""
    for cls in type(layer).__mro__:
        names = STATISTICS.get(f"{cls.__module__}.{cls.__qualname__}")
        if names is not None:
            return names
    return frozenset()


def _tensors(layer: Any) -> Iterator[Any]:
    """Yield a layer's own floating tensors: parameters, buffers, and those in plain attributes."""
    own = {name: value for name, value in vars(layer).items() if name != "_sub_layers"}
    for _, native in leaves(own, _is_tensor):
        if native._is_initialized() and native.is_dense() and is_inexact(native):
            yield native


def _repeated() -> bool:
    """Return whether a call happens in the backward pass, where only recomputation calls layers."""
    in_backward: Callable[[], bool] = core.eager._is_run_in_backward
    return in_backward()


def _enter(listener: Listener, module: PaddleModule, _: Any, args: Any, kwargs: Any) -> Any:
    if _repeated():
        return None
    return listener.enter(module, args, kwargs)


def _leave(listener: Listener, module: PaddleModule, _: Any, args: Any, kwargs: Any, output: Any) -> Any:
    if _repeated():
        return None
    return listener.leave(module, args, kwargs, output)


def _backward(pairs: list[tuple[Any, Any | None]]) -> None:
    """Run backward; a tensor named twice gets the sum, as Paddle takes each root once."""
    roots: dict[int, tuple[Any, Any | None]] = {}
    for tensor, gradient in pairs:
        if tensor.stop_gradient:
            continue
        if id(tensor) in roots:
            first = roots[id(tensor)][1]
            ones = [paddle.ones_like(tensor) if item is None else item for item in (first, gradient)]
            gradient = ones[0] + ones[1]
        roots[id(tensor)] = (tensor, gradient)
    if roots:
        with relayed():
            paddle.autograd.backward([root for root, _ in roots.values()], [grad for _, grad in roots.values()])


def _storage(native: Any) -> Any:
    """Return a second handle on a tensor's storage."""
    handle = core.DenseTensor()
    handle._share_data_with(native.get_tensor())
    return handle


def _cast(native: Any, dtype: str) -> None:
    """Put a cast copy's storage under a tensor object."""
    if dtype_of(native) == dtype:
        return
    try:
        with paddle.no_grad():
            twin = native.detach().astype(dtype)
        native.get_tensor()._share_data_with(twin.get_tensor())
    except Exception as error:
        msg = f"cannot hold {native.name!r} of dtype {dtype_of(native)} as {dtype}: {error}"
        raise LiftError(msg) from error


@cache
def _machinery() -> frozenset[str]:
    """Return the names of the attributes that Paddle itself keeps on every layer."""
    return frozenset(vars(paddle.nn.Layer()))


class _Attributes:
    """Remember a layer's plain attributes and its buffers: the objects, which a run may exchange.

    A tensor in a plain attribute is a buffer to Paddle: a cache that is None moves there when a run fills it.
    """

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._plain = self._now()
        self._buffers = dict(layer._buffers)
        self._transient = set(layer._non_persistable_buffer_names_set)

    def _now(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self._layer).items() if name not in _machinery()}

    def restore(self) -> None:
        """Put them back, in place."""
        buffers, transient = self._layer._buffers, self._layer._non_persistable_buffer_names_set
        buffers.clear()
        buffers.update(self._buffers)
        transient.clear()
        transient.update(self._transient)
        attributes = vars(self._layer)
        for name in self._now().keys() - self._plain.keys():
            del attributes[name]
        attributes.update(self._plain)


class _Gradients:
    """Keep parameters' gradients: the same storage, under ``.grad`` and under handles that a user holds."""

    def __init__(self, natives: list[Any]) -> None:
        self._kept: list[tuple[Any, Any, Any]] = []
        for native in natives:
            if not native.is_leaf:
                continue
            gradient = native.grad
            if gradient is None:
                self._kept.append((native, None, None))
            elif gradient.is_selected_rows():
                self._kept.append((native, None, from_array(np.array(array_of(gradient)), device_of(native))))
            else:
                self._kept.append((native, gradient, _storage(gradient)))

    def drop(self) -> None:
        """Leave no gradient at any of them."""
        for native, _, _ in self._kept:
            native.clear_gradient(False)

    def restore(self) -> None:
        """Put them back; a row-wise gradient comes back dense, as Paddle cannot build one from Python."""
        self.drop()
        for native, gradient, storage in self._kept:
            if storage is None:
                continue
            if gradient is None:
                native.grad = storage
                continue
            gradient.get_tensor()._share_data_with(storage)
            native.grad = gradient
            native.grad.get_tensor()._share_data_with(storage)
