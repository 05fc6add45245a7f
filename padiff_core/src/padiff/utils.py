"""Stand where scripts written for PaDiff 0.2 and 0.3 look for its helpers."""

from __future__ import annotations

from padiff.alignment import LayerMap

__all__ = ["LayerMap", "log"]


def log(*words: object) -> None:
    """Print a line as PaDiff marks its own."""
    print("[AutoDiff]", *words)
