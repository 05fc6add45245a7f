"""Intercept the functions that MindSpore runs, and let one be called by a cell.

MindSpore has no mode in which it reports: its functions are replaced for a while, and so are the methods and
operators of its tensors, and what a primitive does when it is called.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import mindspore
import numpy as np
from mindspore.ops import Primitive

from padiff.adapter import CallsFunction, Detour, Hook, Intercept, map_leaves, replaced
from padiff_mindspore.tensor import array_of, overwrite

_WITHOUT_FLOAT64 = (
    "AffineGrid",
    "BatchNorm",
    "BCEWithLogitsLoss",
    "BinaryCrossEntropy",
    "Conv2D",
    "Conv2DBackpropInput",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "HShrink",
    "Lerp",
    "LpNorm",
    "LRN",
    "PReLU",
    "ReLU6",
    "SoftShrink",
)
"""Primitives that have a float32 kernel on a CPU, and none for float64."""
_NAMESPACES = ("mint.nn.functional", "mint.linalg", "mint", "ops", "numpy")


class Calling(CallsFunction, mindspore.nn.Cell):
    """A cell that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, auto_prefix=False)


def intercept_functions(model: Any, intercept: Intercept) -> Hook:
    """Let ``intercept`` be called in place of the functions that a model's code uses, until the hook is closed."""
    return _detour().open(intercept, (one for _, one in model.cells_and_names()))


@functools.cache
def _detour() -> Detour:
    names = [f"mindspore.{name}" for name in _NAMESPACES]
    spaces = {name: sys.modules[name] for name in names if name in sys.modules}
    kernels = [cls for cls in vars(mindspore.ops).values() if isinstance(cls, type) and issubclass(cls, Primitive)]
    # Of those, and of what they are derived from, the classes that say what a call does.
    called = {one: "mindspore.ops" for cls in kernels for one in cls.__mro__ if "__call__" in vars(one)}
    return Detour({"mindspore.Tensor": mindspore.Tensor, **spaces}, called=called)


@contextmanager
def narrowing() -> Iterator[None]:
    """Let primitives without a float64 kernel compute in float32 within, backward too; what they raise ends a graph."""
    with ExitStack() as stack:
        for cls in (getattr(mindspore.ops.operations, name) for name in _WITHOUT_FLOAT64):
            stack.enter_context(replaced(cls, "__call__", _narrow(cls.__call__)))
        yield


def _narrow(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def called(primitive: Any, *args: Any) -> Any:
        given = _turned(args, mindspore.float64, mindspore.float32)
        statistics = [(own, one, array_of(one).copy()) for own, one in zip(args, given, strict=True) if _is_state(own)]
        output = call(primitive, *given)
        for own, one, before in statistics:
            if not np.array_equal(array_of(one), before):
                overwrite(own, array_of(one).astype(np.float64))
        return _turned(output, mindspore.float32, mindspore.float64)

    return called


def _is_state(value: Any) -> bool:
    """Return whether a primitive may write into what it is given: the statistics of a norm."""
    return isinstance(value, mindspore.Parameter) and value.dtype == mindspore.float64 and not value.requires_grad


def _turned(values: Any, own: Any, other: Any) -> Any:
    """Return values with tensors of one type in another, with their history."""

    def is_own(value: Any) -> bool:
        return isinstance(value, mindspore.Tensor) and value.dtype == own

    return map_leaves(values, is_own, lambda _, value: mindspore.ops.cast(value, other))
