"""Run ``padiff plugins``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from padiff.cli._table import table

if TYPE_CHECKING:
    from padiff.plugins import Contributed

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "exit status: 0 if all can be used (a framework may be missing), 2 if something is broken"
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--traceback", action="store_true", help="show Python's traceback on an error")


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    from padiff import plugins

    rows = plugins.contributed()
    wrong = any(row.state in (plugins.State.BROKEN, plugins.State.CONFLICT) for row in rows)
    return (2 if wrong else 0), _json(rows) if arguments.json else _text(rows)


def _json(rows: tuple[Contributed, ...]) -> str:
    import attrs

    return json.dumps([attrs.asdict(row) for row in rows], indent=2)


def _text(rows: tuple[Contributed, ...]) -> str:
    cells = [("WHAT", "NAME", "STATE", "DISTRIBUTION", "ABOUT")]
    for row in rows:
        distribution = " ".join(filter(None, [row.distribution, row.version]))
        cells.append((row.sort, row.name, str(row.state), distribution, row.doc))
    return table(cells, [f"{row.name}: {row.why}." for row in rows if row.why])
