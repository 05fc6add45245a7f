"""Keep a tape of what a model computes eagerly, so that gradients of every value can be seen and replaced.

JAX differentiates functions, padiff watches values while they run. The tape is a trace of JAX's own
(``jax.core.Trace``): while it is the current one, every primitive comes to it with concrete operands. It runs the
primitive as eager JAX does, bit for bit, and remembers how it was computed where an operand is on the tape. `backward`
then walks the tape from its end with ``jax.vjp`` of one primitive at a time, and calls hooks with each value's complete
gradient.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Trace, Tracer
from jax.extend.core import find_top_trace, get_opaque_trace_state, set_current_trace, take_current_trace

Cotangents = list[Any]
_ORDER = itertools.count()


def _next() -> int:
    return next(_ORDER)


@attrs.define(eq=False)
class Node:
    """Remember one operation: what it was computed from, and how gradients come back through it."""

    parents: Sequence[Taped] = ()
    pull: Callable[[Cotangents], Iterable[Any]] | None = None
    """Gradients of the outputs -> gradients of the parents; None at a leaf."""
    avals: list[Any] = attrs.field(factory=list)
    """Shape and dtype of each output."""
    hooks: dict[int, list[Callable[[Any], Any | None]]] = attrs.field(factory=dict)
    """Index of an output -> what is called with its complete gradient, and may return another."""
    order: int = attrs.field(init=False, factory=_next)


class Taped(Tracer):
    """An array on the tape: concrete, and remembered with what it was computed from."""

    __slots__ = ("index", "node", "value")

    def __init__(self, value: Any, node: Node, index: int = 0) -> None:
        super().__init__(_TAPE, jax.typeof(value))
        self.value = value
        self.node = node
        self.index = index

    # What a tracer refuses because it has no value, and this one answers as any array does.

    def to_concrete_value(self) -> Any:
        return self.value

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.value).__array__(*args, **kwargs)

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def item(self, *args: int) -> Any:
        return self.value.item(*args)

    def tolist(self) -> Any:
        return self.value.tolist()

    def block_until_ready(self) -> Taped:
        self.value.block_until_ready()
        return self

    def devices(self) -> Any:
        return self.value.devices()

    @property
    def device(self) -> Any:
        return self.value.device

    @property
    def sharding(self) -> Any:
        return self.value.sharding


def value_of(native: Any) -> Any:
    """Return the plain array of a value, on the tape or not."""
    return native.value if isinstance(native, Taped) else native


def leaf(value: Any) -> Taped:
    """Put a value on the tape that gradients are asked for and that was computed from nothing."""
    return Taped(value, Node(avals=[jax.typeof(value)]))


def passed_through(value: Any, origin: Taped) -> Taped:
    """Put a value on the tape whose gradient goes unchanged to ``origin``."""
    return Taped(value, Node([origin], lambda cotangents: cotangents, [jax.typeof(value)]))


class _Tape(Trace):
    """What runs each primitive eagerly, and remembers it where an operand is on the tape."""

    def __init__(self) -> None:
        super().__init__()
        # Flax lets a Variable change only at the level of tracing at which it was made. The tape is no other level:
        # it computes now, with values. So it answers as the eager one does.
        with take_current_trace():
            self._weakref = find_top_trace(None)._weakref

    def stage_value(self, val: Any) -> Any:
        return val

    def process_primitive(self, primitive: Any, operands: Any, params: Any, /) -> Any:
        values = [value_of(one) for one in operands]
        found = primitive.bind(*values, **params)
        # Not told from the identity by its derivative, which is zero rather than absent.
        if primitive.name == "stop_gradient":
            return found
        outputs = list(found) if primitive.multiple_results else [found]
        kept = _remembered(lambda given: primitive.bind(*given, **params), operands, values, outputs)
        return kept if primitive.multiple_results else kept[0]

    def process_call(self, primitive: Any, function: Any, operands: Any, params: Any, /) -> Any:
        with set_current_trace(self):
            return function.call_wrapped(*operands)

    def process_custom_jvp_call(self, primitive: Any, function: Any, jvp: Any, operands: Any, /, **params: Any) -> Any:
        return self._custom(primitive, (function, jvp), operands, params)

    def process_custom_vjp_call(
        self, primitive: Any, function: Any, fwd: Any, bwd: Any, operands: Any, /, **params: Any
    ) -> Any:
        return self._custom(primitive, (function, fwd, bwd), operands, params)

    def _custom(self, primitive: Any, functions: tuple[Any, ...], operands: Any, params: Any) -> Any:
        values = [value_of(one) for one in operands]
        outputs = functions[0].call_wrapped(*values)
        return _remembered(lambda given: primitive.bind(*given, subfuns=functions, **params), operands, values, outputs)


_TAPE = _Tape()
with take_current_trace():
    _LEVEL = get_opaque_trace_state(convention="nnx")


def _remembered(
    again: Callable[[list[Any]], Any], operands: Sequence[Any], values: list[Any], outputs: Sequence[Any]
) -> list[Any]:
    """Return the outputs, those that a gradient can reach on the tape; ``again`` computes them from operands."""
    taped = [index for index, one in enumerate(operands) if isinstance(one, Taped)]
    smooth = [index for index, one in enumerate(outputs) if jnp.issubdtype(jax.typeof(one).dtype, jnp.inexact)]
    if not taped or not smooth:
        return list(outputs)

    def some(*given: Any) -> list[Any]:
        full = list(values)
        for index, one in zip(taped, given, strict=True):
            full[index] = one
        found = again(full)
        listed = found if isinstance(found, list | tuple) else [found]
        return [listed[index] for index in smooth]

    def pull(cotangents: Cotangents) -> Iterable[Any]:
        # Only now: a forward pass that also gave derivatives would round otherwise than a plain one.
        return jax.vjp(some, *(values[index] for index in taped))[1](cotangents)

    node = Node([operands[index] for index in taped], pull, [jax.typeof(outputs[index]) for index in smooth])
    kept = list(outputs)
    for position, index in enumerate(smooth):
        kept[index] = Taped(outputs[index], node, position)
    return kept


def taping() -> Any:
    """Return a context in which everything that JAX computes in this thread comes to the tape."""
    return set_current_trace(_TAPE)


def at_eager_level() -> bool:
    """Return whether values are concrete now: no function is being compiled, mapped or scanned."""
    return bool(get_opaque_trace_state(convention="nnx") == _LEVEL)


def backward(starts: Iterable[tuple[Any, Any | None]], leaves: Iterable[Taped] = ()) -> list[Any | None]:
    """Run backward from (value, gradient) pairs, a gradient of None standing for 1; return the leaves' gradients."""
    found: dict[Node, Cotangents] = {}
    heap: list[tuple[int, Node]] = []

    def add(target: Taped, gradient: Any) -> None:
        node = target.node
        if node not in found:
            found[node] = [None] * len(node.avals)
            heapq.heappush(heap, (-node.order, node))
        before = found[node][target.index]
        found[node][target.index] = gradient if before is None else before + gradient

    with take_current_trace():
        for start, gradient in starts:
            if isinstance(start, Taped):
                add(start, jnp.ones_like(start.value) if gradient is None else value_of(gradient))
        while heap:
            _, node = heapq.heappop(heap)
            cotangents = found[node]
            for index, gradient in enumerate(cotangents):
                if gradient is not None:
                    cotangents[index] = _after_hooks(gradient, node.hooks.get(index, ()))
            if node.pull is not None:
                del found[node]
                for parent, gradient in zip(node.parents, node.pull(_filled(cotangents, node)), strict=True):
                    add(parent, gradient)
    return [found[one.node][one.index] if one.node in found else None for one in leaves]


def _after_hooks(gradient: Any, hooks: Iterable[Callable[[Any], Any | None]]) -> Any:
    for hook in list(hooks):
        other = hook(gradient)
        gradient = gradient if other is None else value_of(other)
    return gradient


def _filled(cotangents: Cotangents, node: Node) -> Cotangents:
    return [
        jnp.zeros(aval.shape, aval.dtype) if one is None else one
        for one, aval in zip(cotangents, node.avals, strict=True)
    ]
