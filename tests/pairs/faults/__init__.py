"""List the planted faults of all pairs."""

from __future__ import annotations

from . import convnet, llama, recurrent, transformer, vae
from .rows import EVERYWHERE, Row

__all__ = ["EVERYWHERE", "ROWS", "Row"]

ROWS: tuple[Row, ...] = tuple(row for pair in (transformer, convnet, recurrent, llama, vae) for row in pair.ROWS)
