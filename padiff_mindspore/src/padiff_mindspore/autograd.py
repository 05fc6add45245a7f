"""Record a run for the backward pass, and run backward from any tensors.

MindSpore's public way, ``value_and_grad``, gives zeros where no gradient arrives, only sees tensors that are positional
arguments, and leaves its flags up when the function raises. Here is what it does itself, piece by piece; every private
name of MindSpore's autograd that the adapter uses stands in this file, or in `versions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import mindspore
import numpy as np
from mindspore.common._grad_function import _Function

from padiff.adapter import handed_on
from padiff_mindspore.versions import MINDSPORE

executor = MINDSPORE.executor
_BY_INPUT = mindspore.ops.GradOperation(get_all=True)


def differentiable(native: Any) -> bool:
    """Return whether a gradient can reach a tensor."""
    return bool(native._requires_grad)


def node_number(native: Any) -> int | None:
    """Return the number of the operation that made a tensor, None where autograd knows of none.

    Numbers are never used twice: a tensor changed by ``x[0] = y`` was made by another operation than before.
    """
    node = native._grad_node
    return None if node is None else int(node._sequence_nr())


def recomputing() -> bool:
    """Return whether a backward pass is going on, where only recomputation calls cells."""
    return backward_pass() >= 0


def backward_pass() -> int:
    """Return the number of the backward pass that is going on; less than 0 where none is."""
    return int(executor._executor.get_current_autodiff_engine_id())


def finish() -> None:
    """Wait for every operation that was started; raises what one of them raised.

    MindSpore computes in another thread, and without this an error comes out of a later, innocent operation.
    """
    executor.sync()


@contextmanager
def _flags(*, recorded: bool = True) -> Iterator[None]:
    """Compute gradients within, and have what runs there recorded; put both flags back on leaving."""
    before, enabled = executor.grad_flag(), executor.enable_grad()
    try:
        executor.set_enable_grad(True)
        if recorded:
            executor.set_grad_flag(True)
        yield
    finally:
        executor.set_grad_flag(before)
        executor.set_enable_grad(enabled)


class _Graph:
    """A graph of MindSpore's, in which everything is recorded from its making to `end`.

    MindSpore keeps a graph until ``value_and_grad`` has run it: small as it is, it would lie between the values of a
    run once those are freed, and glibc could not give that memory to larger values again. ``clear_res``, which drops
    it too, forgets the handles of all hooks: those on parameters could never be removed. So each is run, through an
    input and an output of its own.
    """

    def __init__(self) -> None:
        self._outermost = not executor.grad_flag()
        self._input = mindspore.Tensor(np.zeros((), np.float32))
        with _flags():
            executor.new_graph(_Graph.end, self._input)
            self._output = self._input * 1

    def end(self) -> None:
        """Record no more, and let go of it, unless it is part of one that is not yet ended."""
        executor.end_graph(_Graph.end, self._output, self._input)
        if self._outermost:
            with _flags(recorded=False):
                MINDSPORE.grad(_Graph.end, _BY_INPUT, self._input)


class _Script:
    """What records a user's script, for as long as anybody wants it."""

    def __init__(self) -> None:
        self._owners: set[object] = set()
        self._before = False

    def begin(self, owner: object) -> None:
        """Record what runs from here on, until `end`; what ran in between may have stopped it."""
        if not self._owners:
            self._before = executor.grad_flag()
            self._graph = _Graph()
        executor.set_grad_flag(True)
        self._owners.add(owner)

    def end(self, owner: object) -> None:
        """Record no more for this owner; harmless where it has not begun."""
        if self._owners == {owner}:
            executor.set_grad_flag(self._before)
            self._graph.end()
        self._owners.discard(owner)


_script = _Script()
begin, end = _script.begin, _script.end

_gathering: list[list[Any]] = []
"""Where the nodes of custom functions go, of each recording that goes on."""


@contextmanager
def recording() -> Iterator[list[Any]]:
    """Record what runs within for a backward pass, and leave no trace of that also where it raises.

    Gives the nodes of the custom functions, which autograd itself does not keep alive: hold them until it has run.
    """
    nodes: list[Any] = []
    with _flags(), ExitStack() as stack:
        _gathering.append(nodes)
        stack.callback(_gathering.pop)
        stack.callback(_Graph().end)
        yield nodes
        finish()


class _Swap(_Function):
    """What gives other values forward, and passes the gradient through backward."""

    @staticmethod
    def forward(ctx: Any, native: Any, make: Callable[[], Any]) -> Any:
        """Return the fresh tensor."""
        ctx.source = native
        return make()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return the gradient as it came."""
        return gradient, None


def passing(native: Any, make: Callable[[], Any]) -> Any:
    """Return what ``make`` makes as a tensor that passes gradients on to another, in or out of a recording."""
    with _flags():
        swapped = _Swap.apply(native, make)
    if _gathering:
        _gathering[-1].append(swapped._grad_node)
    return swapped


def source_of(native: Any) -> Any:
    """Return the tensor that a chain of `passing` leads back to."""
    node = native._grad_node
    while isinstance(node, _Swap):
        native = node.source
        node = native._grad_node
    return native


class _Start(_Function):
    """The one end of a graph, from which each of several tensors gets the gradient that was given for it."""

    @staticmethod
    def forward(ctx: Any, given: Sequence[Any], *natives: Any) -> Any:
        """Return a tensor whose value says nothing."""
        ctx.given = given
        return mindspore.Tensor(np.zeros((), np.float32))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return the given gradients, bit for bit."""
        executor.set_enable_grad(True)  # as in value_and_grad: recomputation calls that in turn
        return None, *ctx.given


def gradients(pairs: Sequence[tuple[Any, Any]], inputs: Sequence[Any]) -> list[Any | None]:
    """Run backward from (tensor, gradient) pairs; return the gradient of each input, None where none arrives.

    Hooks run on every tensor between the pairs and the inputs, the inputs' own among them.
    """
    return list(_backward(pairs, tuple(inputs), accumulate_grad=False))


def accumulate(native: Any) -> None:
    """Run backward from one tensor; gradients add up at ``_grad`` of each leaf that it was computed from."""
    _backward([(native, mindspore.ops.ones_like(native))], (), accumulate_grad=True)


def _backward(pairs: Sequence[tuple[Any, Any]], inputs: tuple[Any, ...], *, accumulate_grad: bool) -> Any:
    with _flags():
        start = _Start.apply([gradient for _, gradient in pairs], *[native for native, _ in pairs])
        executor.set_grad_flag(False)
        one = mindspore.Tensor(np.ones((), np.float32))
        given = (start,), (one,), False, False, inputs, True
        found = handed_on(MINDSPORE.home._c_expression.run_backward, given, {"accumulate_grad": accumulate_grad})
        finish()
    return found
