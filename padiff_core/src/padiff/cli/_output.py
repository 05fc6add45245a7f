"""Decide before the work in which formats the report is written, and where; write it after."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from padiff.cli._words import in_options
from padiff.import_string import SpecError

if TYPE_CHECKING:
    from padiff.plugins import Row
    from padiff.report import Report

_STDOUT = "-"
_NEXT = "\n  next "


class Output(NamedTuple):
    """The format that a report is written in, and the file; None for standard output."""

    renderer: Row
    path: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say how the report is written."""
    add = parser.add_argument
    add("--format", metavar="NAME", help="text, json, html, or a plugin's (`padiff plugins` lists them)")
    add("--output", metavar="FILE", help="write the report there, in the format of --format or of the file's ending")
    add("--json", metavar="FILE", help="write the report there as JSON; - for stdout, without the text")
    add("--show-mapping", action="store_true", help="print which modules and parameters were matched, and why, too")
    add("-q", "--quiet", action="store_true", help="print the verdict's line alone, and no progress")


def outputs(arguments: argparse.Namespace) -> list[Output]:
    """Return what is to be written; raises `PadiffError` for an unknown format and a file that cannot be."""
    from padiff import plugins

    found = []
    if arguments.json:
        found.append(Output(plugins.renderer("json"), _path(arguments.json, "--json")))
    if arguments.format or arguments.output:
        path = _path(arguments.output or _STDOUT, "--output")
        row = plugins.renderer(arguments.format) if arguments.format else plugins.renderer_for(arguments.output)
        found.append(Output(row, path))
    if sum(output.path is None for output in found) > 1:
        msg = "two formats are to be written to standard output.\nHint: give one of them a file."
        raise SpecError(msg)
    return found


def _path(name: str, option: str) -> Path | None:
    """Return the file; a folder that is not there is told before the work, not after it."""
    return None if name == _STDOUT else file_named(name, option)


def file_named(name: str, option: str) -> Path:
    """Return the file that an option names; raise `SpecError` where none can be written there."""
    path = Path(name)
    if path.is_dir() or not path.absolute().parent.is_dir():
        msg = f"cannot write {path}: {'it is a folder' if path.is_dir() else 'its folder does not exist'}.\n"
        raise SpecError(msg + f"Hint: {option} FILE wants a file in a folder that exists.")
    return path


def written(report: Report, wanted: list[Output], arguments: argparse.Namespace) -> tuple[int, str]:
    """Write the files; return the exit status, and what belongs on stdout.

    What cannot be written is told on stderr: the report is not lost with it.
    """
    from padiff import plugins
    from padiff.errors import PluginError
    from padiff.report import headline

    status, text = 0 if report.aligned else 1, None
    for output in wanted:
        try:
            done = plugins.rendered(report, output.renderer)
        except PluginError as error:
            print(f"padiff: {error}", file=sys.stderr)
            status = 2
            continue
        if output.path is not None:
            write(output.path, done if done.endswith("\n") else f"{done}\n", "- writes to standard output")
        elif output.renderer.name != "text":
            text = done.removesuffix("\n")
    if text is None:
        text = headline(report) if arguments.quiet else _in_options(str(report))
        text += f"\n\n{report.mapping}" if arguments.show_mapping else ""
    return status, text


def _in_options(text: str) -> str:
    """Return a report with its last words, on what to do next, in those of the command line."""
    rest, next_, advice = text.rpartition(_NEXT)
    return f"{rest}{next_}{in_options(advice)}" if next_ else text


def write(path: Path, text: str, hint: str, *, anew: bool = False) -> None:
    """Write a file, with ``anew`` one that is not there yet; raise `SpecError` with a hint where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x" if anew else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}.\nHint: {hint}."
        raise SpecError(msg) from error
