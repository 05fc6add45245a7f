"""Run ``padiff adapters`` and ``padiff plugins``: what is installed, its state, and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from padiff.plugins import Contributed, Installed

_NONE = "no adapter is installed.\nHint: pip install padiff-torch padiff-paddle."


def add_adapters_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``padiff adapters``."""
    parser.epilog = "exit status: 0 if an adapter can be used, 2 if none can"
    parser.add_argument("--load", action="store_true", help="import each framework too, and see whether it works")
    _add_common(parser)


def add_plugins_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``padiff plugins``."""
    parser.epilog = "exit status: 0 if all can be used (a framework may be missing), 2 if something is broken"
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def adapters(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status of ``padiff adapters``, and what belongs on stdout."""
    from padiff.errors import AdapterError
    from padiff.plugins import State, adapters, installed, load

    if arguments.load:
        for info in adapters():
            try:
                load(info)
            except AdapterError:
                continue  # the rows tell what was wrong
    rows = installed()
    status = 0 if any(row.state in (State.AVAILABLE, State.LOADED) for row in rows) else 2
    if not rows and not arguments.json:
        return status, _NONE
    columns = ("ADAPTER", "STATE", "FRAMEWORK", "DISTRIBUTION", "CLAIMS")
    cells = [
        (row.name, str(row.state), row.framework_version or "-", _distribution(row), ", ".join(row.roots) or "-")
        for row in rows
    ]
    return status, _text(rows, columns, cells, as_json=arguments.json)


def plugins(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status of ``padiff plugins``, and what belongs on stdout."""
    from padiff.plugins import State, contributed

    rows = contributed()
    status = 2 if any(row.state in (State.BROKEN, State.CONFLICT) for row in rows) else 0
    columns = ("WHAT", "NAME", "STATE", "DISTRIBUTION", "ABOUT")
    cells = [(row.sort, row.name, str(row.state), _distribution(row), row.doc) for row in rows]
    return status, _text(rows, columns, cells, as_json=arguments.json)


def _distribution(row: Installed | Contributed) -> str:
    return " ".join(filter(None, [row.distribution, row.version]))


def _text(
    rows: Sequence[Installed | Contributed], columns: Sequence[str], cells: Sequence[Sequence[str]], *, as_json: bool
) -> str:
    """Return rows in columns, and below them, one line each, why they are as they are; or as JSON."""
    if as_json:
        import attrs

        return json.dumps([attrs.asdict(row) for row in rows], indent=2)
    lines = [columns, *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    reasons = [f"{row.name}: {row.why}." for row in rows if row.why]
    return "\n".join([*text, *([""] if reasons else []), *reasons])
