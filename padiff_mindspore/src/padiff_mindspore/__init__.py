"""Teach padiff to read MindSpore models.

``plugin`` says, without importing MindSpore, that this adapter exists; the rest is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from padiff_mindspore.adapter import MindSporeAdapter

__all__ = ["MindSporeAdapter"]


def __getattr__(name: str) -> Any:
    """Load the adapter, and MindSpore with it, on first use."""
    if name in __all__:
        return getattr(import_module("padiff_mindspore.adapter"), name)
    msg = f"module 'padiff_mindspore' has no attribute {name!r}"
    raise AttributeError(msg)
