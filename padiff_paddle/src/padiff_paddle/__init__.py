"""Teach padiff to read PaddlePaddle models.

``plugin`` says, without importing Paddle, that this adapter exists; the rest is imported on first use.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PaddleAdapter"]


def __getattr__(name: str) -> Any:
    if name == "PaddleAdapter":
        from padiff_paddle.adapter import PaddleAdapter

        return PaddleAdapter
    msg = f"module 'padiff_paddle' has no attribute {name!r}"
    raise AttributeError(msg)
