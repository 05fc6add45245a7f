"""Hold the lines of a report: a label, and the text beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

MOST_ITEMS = 5
MOST_LINES = 10


@attrs.frozen
class Line:
    """A label, and the text in spans of one style each. ``level`` 0 stands at the margin."""

    spans: tuple[tuple[str, str], ...]
    label: str = ""
    level: int = 1


def line(label: str, text: str, style: str = "") -> Line:
    """Return a line of one style."""
    return Line(((text, style),), label)


def heading(*spans: tuple[str, str]) -> Line:
    """Return a line at the margin."""
    return Line(spans, level=0)


def several(
    label: str, texts: Sequence[str], style: str = "", *, most: int = MOST_LINES, rest: str = ""
) -> Iterator[Line]:
    """Yield texts under one label; each may have lines of its own."""
    lines = [line for text in texts[:most] for line in text.splitlines()]
    if len(texts) > most:
        lines.append(f"... and {len(texts) - most} more {rest}".rstrip())
    for index, text in enumerate(lines):
        yield line("" if index else label, text, style)
