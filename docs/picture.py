"""Draw ``docs/report.svg``: the report of ``examples/my_port.py``, as a terminal shows it.

Run ``python docs/picture.py`` where torch, paddle and padiff are installed. ``--text FILE`` draws a coloured report
that was written before.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
COMMAND = "padiff diff my_port:build_torch my_port:build_paddle --inputs my_port:inputs"
WIDTH = 118
SHOWN = ("not aligned", "source 1 ", "source 2 ", "  next")
"""How the blocks of the report begin that the picture shows; ``...`` stands for the others."""
THEME = TerminalTheme(
    (255, 255, 255),
    (36, 41, 47),
    [
        (36, 41, 47),
        (207, 34, 46),
        (17, 99, 41),
        (154, 103, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (110, 119, 129),
    ],
    [
        (87, 96, 106),
        (164, 14, 38),
        (26, 127, 55),
        (191, 135, 0),
        (33, 139, 255),
        (164, 117, 249),
        (49, 146, 170),
        (140, 149, 159),
    ],
)


def coloured_report() -> str:
    """Return the report as a terminal gets it."""
    sys.path.insert(0, str(EXAMPLES))
    os.chdir(EXAMPLES)  # places are shown as whoever works there reads them
    import my_port

    import padiff
    from padiff.report import to_text

    report = padiff.diff(my_port.build_torch(), my_port.build_paddle(), my_port.inputs())
    return to_text(report, width=WIDTH, color=True)


def excerpt(report: str) -> str:
    """Return the report's head, first sources and next step, with ``...`` for what is left out."""
    blocks = report.split("\n\n")
    kept = []
    for block in blocks:
        plain = Text.from_ansi(block).plain
        if plain.startswith(SHOWN):
            kept.append(block)
        elif kept[-1] != "  ...":
            kept.append("  ...")
    return "\n\n".join(kept)


def draw(report: str) -> str:
    """Return the picture as SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), legacy_windows=False)
    console.print(Text.assemble(("$ ", "dim"), COMMAND), highlight=False)
    for line in report.splitlines():
        console.print(Text.from_ansi(line), highlight=False, soft_wrap=True)
    return console.export_svg(title="padiff", theme=THEME, unique_id="report")


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", type=Path, help="a coloured report to draw, instead of a new one")
    options = parser.parse_args()
    report = options.text.read_text(encoding="utf-8") if options.text else coloured_report()
    (HERE / "report.svg").write_text(draw(excerpt(report)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
