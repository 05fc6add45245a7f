"""Intercept the functions that Paddle runs, and let one be called by a layer.

Paddle has no mode in which it reports: its functions are replaced for a while, and so are the methods and
operators of its tensors. The kernels below (``_C_ops``) are what is seen of a function that the user's code kept.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import paddle

from padiff.adapter import CallsFunction, Detour, Hook, Intercept

_NAMESPACES = (
    "paddle.nn.functional",
    "paddle.linalg",
    "paddle.fft",
    "paddle.signal",
    "paddle.incubate.nn.functional",
    "paddle",
    "paddle._C_ops",
)


class Calling(CallsFunction, paddle.nn.Layer):
    """A layer that calls a function."""


def intercept_functions(model: Any, intercept: Intercept) -> Hook:
    """Let ``intercept`` be called in place of the functions that a model's code uses, until the hook is closed."""
    return _detour().open(intercept, model.sublayers(include_self=True))


@functools.cache
def _detour() -> Detour:
    spaces = {name: sys.modules[name] for name in _NAMESPACES if name in sys.modules}
    return Detour({"paddle.Tensor": paddle.Tensor, **spaces})
