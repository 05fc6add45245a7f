"""Intercept the functions that MindSpore runs, and let one be called by a cell.

MindSpore has no mode in which it reports: its functions are replaced for a while, and so are the methods and
operators of its tensors, and what a primitive does when it is called.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import mindspore
from mindspore.ops import Primitive

from padiff.adapter import CallsFunction, Detour, Hook, Intercept

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
