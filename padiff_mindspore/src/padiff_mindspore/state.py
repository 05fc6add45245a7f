"""Put a model back as it was: what a run changes, and what a wider dtype replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.common.seed import _get_graph_seed

from padiff.errors import LiftError
from padiff.pytree import leaves, map_leaves
from padiff_mindspore.autograd import finish
from padiff_mindspore.tensor import array_of, dtype_of, from_array, give, is_inexact, native_dtype, overwrite

__all__ = ["hidden_parameters", "lifted", "preserved", "reseeded", "tidied", "tidying"]

_COMPLEX = {"float64": "complex128", "float32": "complex64"}


@contextmanager
def preserved(cells: Sequence[Any], parameters: Iterable[Any], changing: Iterable[Any]) -> Iterator[None]:
    """Put back gradients, requires_grad, modes and plain attributes on leaving, and the values of ``changing``."""
    with ExitStack() as stack:
        for cell in cells:
            stack.callback(_Attributes(cell).restore)
        for parameter in parameters:
            stack.callback(_Leaf(parameter).restore)
        for native in changing:
            stack.callback(overwrite, native, np.array(array_of(native)))
        stack.callback(finish)  # first of all: what still runs would write over it
        yield


@contextmanager
def lifted(cells: Sequence[Any], parameters: Iterable[Any], dtype: str) -> Iterator[None]:
    """Hold floating tensors in at least ``dtype``; put the old storages back after.

    Objects stay the same, only their storage is exchanged: so tied parameters stay tied, and whoever holds one
    sees the wider values. Raises `LiftError` where a tensor cannot be moved.
    """
    if dtype not in _COMPLEX:
        msg = f"cannot lift a MindSpore model to {dtype!r}; known are {', '.join(_COMPLEX)}"
        raise LiftError(msg)
    natives = {id(native): native for native in (*parameters, *(p for cell in cells for p in hidden_parameters(cell)))}
    with ExitStack() as stack:
        for cell in cells:
            stack.callback(_Attributes(cell).restore)
        for native in natives.values():
            stack.callback(_Leaf(native).restore)
            _lift(native, dtype, stack)
        for cell in cells:
            _lift_attributes(cell, dtype, natives.keys())
        stack.callback(finish)
        yield


def hidden_parameters(cell: Any) -> Iterator[Any]:
    """Yield the parameters that a cell keeps in a list or dict of its own, where MindSpore does not see them.

    Also those of cells kept so.
    """
    own = {name: value for name, value in vars(cell).items() if name not in _machinery()}
    for _, found in leaves(own, lambda value: isinstance(value, mindspore.Parameter | nn.Cell)):
        yield from (found,) if isinstance(found, mindspore.Parameter) else found.get_parameters()


def tidying(cells: Iterable[Any]) -> Callable[[], None]:
    """Return what takes the tables of hooks away again that cells do not have yet; MindSpore makes them on a call."""
    absent = [(vars(cell), name) for cell in cells for name in _tables() if vars(cell)[name] is None]

    def tidy() -> None:
        for attributes, name in absent:
            attributes[name] = attributes[name] or None

    return tidy


@contextmanager
def tidied(cells: Iterable[Any]) -> Iterator[None]:
    """Take the tables of hooks away on leaving that a call makes and that stay empty."""
    tidy = tidying(cells)
    try:
        yield
    finally:
        tidy()


@cache
def _tables() -> tuple[str, ...]:
    return tuple(name for name in vars(nn.Cell()) if name.startswith("_lazy_") and "hook" in name)


@contextmanager
def reseeded(cells: Iterable[Any]) -> Iterator[None]:
    """Let dropout cells draw from the global seed within; where none is set, from wherever they are.

    Such a cell seeds its generator once, when it is built, and goes on from there: in a run of its own it would never
    draw the same again.
    """
    with ExitStack() as stack:
        for cell in cells if mindspore.get_seed() is not None else ():
            for name, primitive in cell._primitives.items():
                if isinstance(primitive, ops.Dropout) and vars(cell).get(name) is primitive:
                    fresh = ops.Dropout(primitive.keep_prob, *_get_graph_seed(0, "dropout"))
                    stack.callback(vars(cell).__setitem__, name, primitive)
                    vars(cell)[name] = fresh
        yield


@cache
def _machinery() -> frozenset[str]:
    """Return the names of the attributes that MindSpore itself keeps on every cell."""
    return frozenset(vars(nn.Cell())) - {"training", "_phase"}


class _Attributes:
    """Remember a cell's plain attributes, its mode among them, and its buffers: objects that a run may exchange."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell
        self._plain = self._now()
        self._buffers = dict(cell._buffers)

    def _now(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self._cell).items() if name not in _machinery()}

    def restore(self) -> None:
        """Put them back, in place."""
        attributes, buffers = vars(self._cell), self._cell._buffers
        for name in self._now().keys() - self._plain.keys():
            del attributes[name]
        attributes.update(self._plain)
        buffers.clear()
        buffers.update(self._buffers)


class _Leaf:
    """Remember the gradient and requires_grad of one parameter or buffer."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._gradient = native._grad
        self._requires_grad = _requires_grad(native)

    def restore(self) -> None:
        if _requires_grad(self._native) != self._requires_grad:
            self._native.requires_grad = self._requires_grad
        self._native._grad = self._gradient


def _requires_grad(native: Any) -> bool:
    return isinstance(native, mindspore.Parameter) and bool(native.requires_grad)


def _wider(native: Any, dtype: str) -> str | None:
    """Return the dtype that a tensor is lifted to, or None where it stays: integers, what is wide already."""
    if not is_inexact(native):
        return None
    wide = _COMPLEX[dtype] if dtype_of(native).startswith("complex") else dtype
    return wide if np.dtype(wide).itemsize > native.itemsize else None


def _lift(native: Any, dtype: str, stack: ExitStack) -> None:
    wide = _wider(native, dtype)
    if wide is None:
        return
    try:
        storage = ops.stop_gradient(native)
        stack.callback(give, native, storage)
        native._grad = None  # its dtype would no longer be the parameter's
        give(native, from_array(array_of(native).astype(wide)))
    except (RuntimeError, TypeError, ValueError) as error:
        msg = f"cannot hold a tensor of shape {tuple(native.shape)} and dtype {dtype_of(native)} as {wide}: {error}"
        raise LiftError(msg) from error


def _lift_attributes(cell: Any, dtype: str, done: Iterable[int]) -> None:
    """Lift tensors that a cell keeps as plain attributes, or in a list or dict of its own."""

    def wanted(value: Any) -> bool:
        return isinstance(value, mindspore.Tensor) and id(value) not in done

    def widened(_: str, value: Any) -> Any:
        wide = _wider(value, dtype)
        return value if wide is None else value.astype(native_dtype(wide))

    attributes = vars(cell)
    for name, value in list(attributes.items()):
        if name not in _machinery() and isinstance(value, mindspore.Tensor | list | tuple | dict):
            attributes[name] = map_leaves(value, wanted, widened)
