"""Print lines as PaDiff marks its own."""

from __future__ import annotations

__all__ = ["say"]


def say(*lines: str) -> None:
    """Print lines as PaDiff marks its own."""
    for line in lines:
        print(f"[AutoDiff] {line}" if line else "")
