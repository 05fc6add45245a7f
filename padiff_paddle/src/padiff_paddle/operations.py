"""Hear the functions that Paddle runs, and let one be called by a layer.

Paddle has no mode in which it tells: its functions are replaced while someone listens, and so are the methods and
operators of its tensors. The kernels below (``_C_ops``) are what is heard of a function that the user's code kept.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import paddle

from padiff.adapter import Detour, Hear, Hook

__all__ = ["Calling", "hear_functions"]

_NAMESPACES = (
    "paddle.nn.functional",
    "paddle.linalg",
    "paddle.fft",
    "paddle.signal",
    "paddle.incubate.nn.functional",
    "paddle",
    "paddle._C_ops",
)


class Calling(paddle.nn.Layer):
    """Call a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns."""
        return self.function(*args, **kwargs)


def hear_functions(model: Any, hear: Hear) -> Hook:
    """Let ``hear`` be called in place of Paddle's functions, in what a model's code uses, until the hook is closed."""
    return _detour().open(hear, model.sublayers(include_self=True))


@functools.cache
def _detour() -> Detour:
    spaces = {name: sys.modules[name] for name in _NAMESPACES if name in sys.modules}
    return Detour({"paddle.Tensor": paddle.Tensor, **spaces})
