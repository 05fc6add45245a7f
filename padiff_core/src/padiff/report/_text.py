"""Give the lines their look: colours and width on a terminal, plain text elsewhere."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Literal

from padiff.report._blocks import lay_out
from padiff.report._lines import Line
from padiff.report._report import Report

LABEL = 13
"""Columns before the text, the label among them."""

STYLES = {
    "aligned": "bold green",
    "not aligned": "bold red",
    "source": "bold red",
    "bold": "bold",
    "label": "dim",
    "path": "bold",
    "location": "cyan",
    "cause": "yellow",
    "quiet": "dim",
}


def to_text(report: Report, *, width: int | None = None, color: bool | None = None) -> str:
    """Return the report as text.

    Unless told otherwise it has colours, and is wrapped to the terminal, where standard output is a terminal;
    elsewhere it has neither, and no line is cut or wrapped.
    """
    terminal = sys.stdout is not None and sys.stdout.isatty()
    if color is None:
        color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if width is None and terminal:
        width = shutil.get_terminal_size().columns
    lines = lay_out(report)
    return _rich(lines, width, color=color) if width or color else "\n".join(map(_plain, lines))


def _prefix(line: Line) -> str:
    return "" if line.level == 0 else f"  {line.label} ".ljust(LABEL)


def _plain(line: Line) -> str:
    return (_prefix(line) + "".join(text for text, _ in line.spans)).rstrip()


def _rich(lines: Iterable[Line], width: int | None, *, color: bool) -> str:
    from rich.console import Console
    from rich.text import Text

    rows = list(lines)
    columns = max(width or max(len(_plain(line)) for line in rows), LABEL + 20)
    out = io.StringIO()
    system: Literal["standard"] | None = "standard" if color else None
    console = Console(file=out, force_terminal=color, color_system=system, width=columns, legacy_windows=False)
    for line in rows:
        text = Text.assemble(*((words, STYLES.get(style, "")) for words, style in line.spans))
        prefix = Text(_prefix(line), STYLES["label"])
        for part in text.wrap(console, columns - len(prefix), overflow="fold") or [text]:
            part.rstrip()
            whole = Text.assemble(prefix, part)
            whole.rstrip()
            console.print(whole, soft_wrap=True, highlight=False)
            prefix = Text(" " * len(prefix))
    return out.getvalue().removesuffix("\n")
