"""Find the kit of a framework."""

from __future__ import annotations

from typing import Any

from .kit import Layout
from .kit_frameworks import PaddleKit, TorchKit
from .kit_mindspore import MindSporeKit
from .kit_toy import ToyKit

__all__ = ["kit"]

_KITS = {"torch": TorchKit, "paddle": PaddleKit, "mindspore": MindSporeKit}


def kit(name: str, layout: Layout | None = None) -> Any:
    """Return a new kit of a framework, or of a dialect of the toy framework."""
    return ToyKit(name, layout) if name in ("rows", "columns") else _KITS[name](layout)
