"""Hold arrays that remember what they were made of, and go back along that."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from padiff.numerics import Array

Back = Callable[[Array], Array]
Axes = int | tuple[int, ...] | None
Made = TypeVar("Made", bound="Tensor")

_numbers = itertools.count()
_passes: list[int] = []
"""Numbers of the backward passes that run, the innermost last, of which no two are alike."""
_erf = np.frompyfunc(math.erf, 1, 1)


class Step:
    """One value on the way: what it was made of, and who wants its gradient."""

    __slots__ = ("grad", "hooks", "number", "sources")

    def __init__(self, sources: Iterable[tuple[Step, Back]] = ()) -> None:
        self.number = next(_numbers)
        self.sources = tuple(sources)
        self.hooks: list[Callable[[Array], Array | None]] = []
        self.grad: Array | None = None


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype.name)


class Tensor:
    """An array, and the step that its value is.

    ``role`` is "parameter" or "buffer" for what a module keeps. A change in place makes another step of it.
    """

    def __init__(
        self,
        data: Any,
        *,
        requires_grad: bool = False,
        sources: Iterable[tuple[Tensor, Back]] = (),
        role: str | None = None,
    ) -> None:
        self.data = np.asarray(data)
        self.requires_grad = requires_grad
        self.role = role
        self.version = 0
        steps = [(source.step, back) for source, back in sources if source.differentiable]
        self.step: Step = Step(steps)

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it."""
        return self.requires_grad or bool(self.step.sources)

    @property
    def grad(self) -> Array | None:
        """Return the gradient that the last backward pass left at a leaf."""
        return self.step.grad

    @grad.setter
    def grad(self, gradient: Array | None) -> None:
        self.step.grad = gradient

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(self.data.shape)

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return _name_of(self.data.dtype)

    def backward(self) -> None:
        """Run backward from this scalar."""
        backward([(self, np.ones_like(self.data))])

    def __add__(self, other: Any) -> Any:
        return added(self, other)

    def __sub__(self, other: Any) -> Any:
        return _binary(np.subtract, self, other, lambda g, a, b: g, lambda g, a, b: -g)

    def __mul__(self, other: Any) -> Any:
        return _binary(np.multiply, self, other, lambda g, a, b: g * b, lambda g, a, b: g * a)

    def __truediv__(self, other: Any) -> Any:
        return _binary(np.divide, self, other, lambda g, a, b: g / b, lambda g, a, b: -g * a / (b * b))

    def __matmul__(self, other: Any) -> Any:
        return product(self, other)

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __neg__(self) -> Any:
        return made(self, -self.data, (self, lambda g: -g))

    def __getitem__(self, index: Any) -> Any:
        def back(gradient: Array) -> Array:
            whole = np.zeros_like(self.data)
            np.add.at(whole, index, gradient)
            return whole

        return made(self, self.data[index], (self, back))

    def exp(self) -> Any:
        """Return e to the power of each element."""
        return _unary(self, np.exp, lambda x, y: y)

    def tanh(self) -> Any:
        """Return the hyperbolic tangent."""
        return _unary(self, np.tanh, lambda x, y: 1 - y * y)

    def sqrt(self) -> Any:
        """Return the square root."""
        return _unary(self, np.sqrt, lambda x, y: 0.5 / y)

    def erf(self) -> Any:
        """Return the error function."""
        return _unary(self, lambda x: _erf(x).astype(x.dtype), lambda x, y: 2 / math.sqrt(math.pi) * np.exp(-x * x))

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Any:
        """Return the sum over one axis, several, or all."""
        shape = self.shape
        total = wide(self.data).sum(axis, keepdims=keepdims)
        axes = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
        kept = [1 if i in {a % len(shape) for a in axes} else n for i, n in enumerate(shape)]
        return made(self, total, (self, lambda g: np.broadcast_to(g.reshape(kept), shape)))

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Any:
        """Return the mean over one axis, several, or all."""
        total = self.sum(axis, keepdims)
        return total * (max(math.prod(total.shape), 1) / max(math.prod(self.shape), 1))

    def reshape(self, *shape: int) -> Any:
        """Return the same elements in another shape."""
        before = self.shape
        return made(self, self.data.reshape(shape), (self, lambda g: g.reshape(before)))

    def transpose(self, *axes: int) -> Any:
        """Return the axes in another order."""
        return made(self, self.data.transpose(axes), (self, lambda g: g.transpose(np.argsort(axes))))

    def add_(self, number: float) -> Any:
        """Add a number in place."""
        self.data += np.asarray(number, self.data.dtype)
        self.version += 1
        self.step = Step([(self.step, lambda g: g)] if self.differentiable else [])
        return self


def made(like: Made, data: Array, *sources: tuple[Tensor, Back]) -> Made:
    """Return a tensor of the class and dtype of another one, made of some."""
    return type(like)(np.asarray(data).astype(like.data.dtype, copy=False), sources=sources)


def added(a: Tensor, b: Any) -> Tensor:
    """Return the sum."""
    return _binary(np.add, a, b, lambda g, a, b: g, lambda g, a, b: g)


def product(a: Tensor, b: Any) -> Tensor:
    """Return the product of matrices."""
    return _binary(_product, a, b, lambda g, a, b: _product(g, _swap(b)), lambda g, a, b: _product(_swap(a), g))


def wide(array: Array) -> Array:
    """Return an array in which sums may be taken: half precision as float32."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 and array.dtype.kind not in "biu" else array


def backward(starts: Sequence[tuple[Tensor, Array]]) -> None:
    """Run backward from (tensor, gradient) pairs; leaves keep the sum in ``grad``, hooks may replace a gradient."""
    _passes.append(next(_numbers))
    try:
        _backward(starts)
    finally:
        _passes.pop()


def backward_pass() -> int | None:
    """Return the number of the backward pass that runs; None where none does."""
    return _passes[-1] if _passes else None


def _backward(starts: Sequence[tuple[Tensor, Array]]) -> None:
    gradients: dict[Step, Array] = {}
    queue: list[tuple[int, Step]] = []

    def add(step: Step, gradient: Array) -> None:
        if step in gradients:
            gradients[step] = gradients[step] + gradient
        else:
            gradients[step] = gradient
            heapq.heappush(queue, (-step.number, step))

    for tensor, gradient in starts:
        if tensor.differentiable:
            add(tensor.step, gradient)
    while queue:
        step = heapq.heappop(queue)[1]
        gradient = gradients.pop(step)
        for hook in list(step.hooks):
            answer = hook(gradient)
            gradient = gradient if answer is None else answer
        for source, back in step.sources:
            add(source, back(gradient))
        if not step.sources:
            step.grad = gradient if step.grad is None else step.grad + gradient


def _unary(x: Tensor, function: Callable[[Array], Array], derived: Callable[[Array, Array], Array]) -> Tensor:
    data = x.data
    y = np.asarray(function(data)).astype(data.dtype, copy=False)
    return made(x, y, (x, lambda g: (g * derived(data, y)).astype(data.dtype, copy=False)))


def _binary(
    function: Callable[[Array, Array], Array],
    one: Tensor,
    other: Any,
    to_one: Callable[[Array, Array, Array], Array],
    to_other: Callable[[Array, Array, Array], Array],
) -> Tensor:
    other = other if isinstance(other, Tensor) else type(one)(np.asarray(other, one.data.dtype))
    a, b = one.data, other.data
    result = np.asarray(function(a, b))
    sources = (one, lambda g: _fit(to_one(g, a, b), a)), (other, lambda g: _fit(to_other(g, a, b), b))
    return type(one)(result, sources=sources)


def _fit(gradient: Array, like: Array) -> Array:
    """Return a gradient summed over the axes along which an operand was broadcast."""
    extra = gradient.ndim - like.ndim
    axes = (*range(extra), *(extra + i for i, n in enumerate(like.shape) if n != gradient.shape[extra + i]))
    summed = wide(gradient).sum(axes).reshape(like.shape) if axes else gradient
    return summed.astype(like.dtype, copy=False)


def _product(a: Array, b: Array) -> Array:
    dtype = np.result_type(a, b)
    return np.asarray(np.matmul(wide(a), wide(b))).astype(dtype, copy=False)


def _swap(array: Array) -> Array:
    return array.swapaxes(-1, -2)
