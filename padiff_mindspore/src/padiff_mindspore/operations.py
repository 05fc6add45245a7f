"""Hear the functions that MindSpore runs, and let one be called by a cell.

MindSpore has no mode in which it tells: its functions are replaced while someone listens, and so are the methods and
operators of its tensors, and what a primitive does when it is called.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import mindspore
from mindspore.ops import Primitive

from padiff.adapter import Detour, Hear, Hook

__all__ = ["Calling", "hear_functions"]

_NAMESPACES = ("mindspore.mint.nn.functional", "mindspore.mint.linalg", "mindspore.mint", "mindspore.ops")
_NUMPY = "mindspore.numpy"


class Calling(mindspore.nn.Cell):
    """Call a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(auto_prefix=False)
        self.function = function

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns."""
        return self.function(*args, **kwargs)


def hear_functions(model: Any, hear: Hear) -> Hook:
    """Let ``hear`` be called in place of MindSpore's functions, in what a model's code uses, until the hook closes."""
    return _detour().open(hear, (one for _, one in model.cells_and_names()))


@functools.cache
def _detour() -> Detour:
    spaces = {name: sys.modules[name] for name in (*_NAMESPACES, _NUMPY) if name in sys.modules}
    kernels = [cls for cls in vars(mindspore.ops).values() if isinstance(cls, type) and issubclass(cls, Primitive)]
    return Detour({"mindspore.Tensor": mindspore.Tensor, **spaces}, called=_with_bases(kernels))


def _with_bases(classes: list[type]) -> dict[type, str]:
    """Return classes that say what a call of theirs does, by the prefix of their full name."""
    return {one: "mindspore.ops" for cls in classes for one in cls.__mro__ if "__call__" in vars(one)}
