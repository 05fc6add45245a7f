"""Run ``padiff adapters``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from padiff.cli._table import table

if TYPE_CHECKING:
    from padiff.plugins import Installed

__all__ = ["add_arguments", "run"]

_NONE = "no adapter is installed.\nHint: pip install padiff-torch padiff-paddle."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "exit status: 0 if an adapter can be used, 2 if none can"
    parser.add_argument("--load", action="store_true", help="import each framework too, and see whether it works")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--traceback", action="store_true", help="show Python's traceback on an error")


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    from padiff import plugins
    from padiff.errors import AdapterError

    if arguments.load:
        for info in plugins.adapters():
            try:
                plugins.load(info)
            except AdapterError:
                continue  # the rows tell what was wrong
    rows = plugins.installed()
    usable = any(row.state in (plugins.State.AVAILABLE, plugins.State.LOADED) for row in rows)
    text = _json(rows) if arguments.json else _table(rows)
    return (0 if usable else 2), text


def _json(rows: tuple[Installed, ...]) -> str:
    import attrs

    return json.dumps([attrs.asdict(row) for row in rows], indent=2)


def _table(rows: tuple[Installed, ...]) -> str:
    if not rows:
        return _NONE
    cells = [("ADAPTER", "STATE", "FRAMEWORK", "DISTRIBUTION", "CLAIMS")]
    for row in rows:
        distribution = " ".join(filter(None, [row.distribution, row.version]))
        framework = row.framework_version or "-"
        cells.append((row.name, str(row.state), framework, distribution, ", ".join(row.roots) or "-"))
    return table(cells, [f"{row.name}: {row.why}." for row in rows if row.why])
