"""Teach padiff to read MindSpore models.

``plugin`` says, without importing MindSpore, that this adapter exists; the rest is imported on first use.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MindSporeAdapter"]


def __getattr__(name: str) -> Any:
    if name == "MindSporeAdapter":
        from padiff_mindspore.adapter import MindSporeAdapter

        return MindSporeAdapter
    msg = f"module 'padiff_mindspore' has no attribute {name!r}"
    raise AttributeError(msg)
