"""Wrap Paddle layers: their tree, their parameters, and how they run and come back as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import paddle
from paddle.jit.dy2static.program_translator import ASTStaticFunction, ProgramTranslator, StaticFunction

from padiff.adapter import (
    Adapter,
    Array,
    Hook,
    HookedModel,
    HookedModule,
    Listener,
    Ranks,
    TensorParameter,
    class_names,
)
from padiff_paddle import state
from padiff_paddle.kinds import STATISTICS
from padiff_paddle.ranks import ranks_of, trained
from padiff_paddle.recompute import recorded_at_once
from padiff_paddle.tensor import PaddleTensor, device_name, from_array, relayed
from padiff_paddle.versions import PADDLE


class PaddleModule(HookedModule):
    """A ``paddle.nn.Layer`` as padiff sees it."""

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the forward that the user wrote, also where ``to_static`` wraps it."""
        forward: Callable[..., Any] = self.native.forward
        return forward.dygraph_function if isinstance(forward, StaticFunction) else forward


class PaddleParameter(TensorParameter):
    """A parameter or a buffer of a layer."""

    tensor = PaddleTensor

    def assign(self, array: Array) -> None:
        """Overwrite the values in place; Paddle itself would take another shape silently."""
        array = self.fitting(array)
        if PaddleTensor(self.native).overwrite(array):
            return
        with paddle.no_grad():
            self.native.copy_(from_array(array, device_name(self.native)), True)

    def thaw(self) -> None:
        """Let it get a gradient."""
        self.native.stop_gradient = False

    def set_gradient(self, array: Array | None) -> None:
        """Set the gradient that the next optimizer step reads, or remove it."""
        source = None if array is None else from_array(self.fitting(array), device_name(self.native))
        self.native.clear_gradient(False)
        if source is not None:
            self.native.grad = source

    def unready(self) -> tuple[str, str] | None:
        """Return why it has no values yet; to Paddle such a parameter is merely empty."""
        if self.native._is_initialized() or getattr(self.native, "_init_func", None) is None:
            return None
        return "has no values yet: it was made under paddle.LazyGuard", "call .initialize() on every parameter"


class PaddleModel(HookedModel):
    """A ``paddle.nn.Layer`` as a model; raises `UnwatchableModel` where hooks would be ignored."""

    module = PaddleModule
    parameter = PaddleParameter
    tables = ("_buffers", "_non_persistable_buffer_names_set")
    modes = ("training", "_dtype")
    base = paddle.nn.Layer
    state = state
    registers = ("register_forward_pre_hook", "register_forward_post_hook")

    def __init__(self, native: Any, adapter: Adapter) -> None:
        self.wrapper = native
        """What trains the layer on several ranks, through which it is run; without one, the layer itself."""
        super().__init__(trained(native), adapter)

    def ranks(self) -> Ranks | None:
        """Return what this process is among the ranks of its job."""
        return ranks_of(self)

    def require_watchable(self) -> None:
        """Raise `UnwatchableModel` where hooks would not run, `InputError` where parameters have no values yet."""
        super().require_watchable()
        for path, native, buffer in self.held():
            if not native._is_initialized():
                self.wrap_parameter(native, buffer, (path,)).ready()

    def children(self, native: Any) -> Iterable[tuple[str, Any]]:
        """Return the layers that a layer holds."""
        return native._sub_layers.items()

    def tensors(self, native: Any) -> Iterable[tuple[str, Any, bool]]:
        """Return the parameters and buffers that a layer holds.

        Those without memory (an LSTM's state) are left out, and buffers that are computed of parameters whenever the
        layer runs (the weight of a weight norm).
        """
        statistics = self._statistics(native) if native._parameters else ()
        for tensors, buffer in ((native._parameters, False), (native._buffers, True)):
            for name, tensor in tensors.items():
                if tensor is None or (buffer and not tensor.is_leaf):
                    continue
                if tensor._is_initialized() or getattr(tensor, "_init_func", None) is not None:
                    yield name, tensor, buffer or name in statistics

    @staticmethod
    def _statistics(native: Any) -> frozenset[str]:
        """Return which of a layer's parameters are buffers by nature."""
        return next((STATISTICS[name] for name in class_names(native) if name in STATISTICS), frozenset())

    def trouble(self, native: Any) -> tuple[str, str] | None:
        """Return what keeps a layer's hooks from running, or lets them run once, on symbols."""
        if isinstance(native, paddle.Model):
            return "is a trainer around a model", "pass its .network"
        if not isinstance(native, paddle.nn.Layer):
            return "is no paddle.nn.Layer: it has no calls to watch", "pass the Layer itself"
        if not paddle.in_dynamic_mode():
            return "would run in static mode, where hooks see no values", "call paddle.disable_static() first"
        if type(native).__name__ in {"TranslatedLayer", "PirTranslatedLayer"}:
            return (
                "was loaded by paddle.jit.load: one program without layers to watch",
                "build the model from its class and load its parameters with set_state_dict",
            )
        if isinstance(native.forward, ASTStaticFunction):
            return (
                "runs through paddle.jit.to_static(full_graph=True): hooks run once, at tracing",
                "build it without to_static or with full_graph=False, or call .forward.rollback()",
            )
        return None

    def attach(self, listener: Listener) -> Hook:
        """Report every call, also of what ``to_static`` would run in frames of Paddle's making: it runs as written."""
        hook = super().attach(listener)
        if any(isinstance(native.forward, StaticFunction) for _, native in self.natives()):
            before = ProgramTranslator().enable_to_static
            paddle.jit.enable_to_static(False)
            hook.add(lambda: paddle.jit.enable_to_static(before))
        return hook

    def register(self, native: Any, name: str, end: Callable[..., Any]) -> Callable[[], Any]:
        """Register a hook that gets keyword arguments too; return what removes it."""
        return PADDLE.register(native, name, end)

    def repeated(self) -> bool:
        """Return whether a call happens in the backward pass, where only recomputation calls layers."""
        return PADDLE.in_backward(PaddleModel.run.__code__)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model, and run backward from what ``differentiate(output)`` returns; return the output."""
        for _, native, _ in self.held():
            if native.is_leaf:
                native.clear_gradient(False)
        with paddle.enable_grad(), recorded_at_once():
            output = self.wrapper(*args, **kwargs)
            if differentiate is not None:
                _backward(differentiate(output))
        return output

    @contextmanager
    def computing_in(self, dtype: str) -> Iterator[None]:
        """Let Paddle's default dtype be another, and that of each layer."""
        for _, layer in self.natives():
            layer._dtype = dtype  # put back with its modes
        with state.computing_in(dtype):
            yield


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
