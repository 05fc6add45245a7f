"""Lay rows out in columns."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table"]


def table(cells: Sequence[Sequence[str]], reasons: Sequence[str]) -> str:
    """Return rows in columns, and below them, one line each, what there is to say about them."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([*lines, *([""] if reasons else []), *reasons])
