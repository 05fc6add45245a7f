"""Teach padiff to read PaddlePaddle models.

``plugin`` says, without importing Paddle, that this adapter exists; the rest is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from padiff_paddle.adapter import PaddleAdapter

__all__ = ["PaddleAdapter"]


def __getattr__(name: str) -> Any:
    """Load the adapter, and Paddle with it, on first use."""
    if name in __all__:
        return getattr(import_module("padiff_paddle.adapter"), name)
    msg = f"module 'padiff_paddle' has no attribute {name!r}"
    raise AttributeError(msg)
