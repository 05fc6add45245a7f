"""Run ``padiff map``: write down which module of one model is which of the other."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from padiff.cli import _sides
from padiff.cli._output import file_named, write
from padiff.cli._parser import Parser, UsageError, add_rank, require_inputs, whole
from padiff.cli._sides import Sides
from padiff.import_string import SpecError

_EPILOG = """\
A SPEC is module:attribute or path/file.py:attribute, as for `padiff diff`. What
is written is msprobe's mapping.yaml, which `padiff diff --mapping` reads too.

exit status: 0 written, 2 trouble
"""
_ONE_RUN = """\
one of the two is a recorded run, and the other is not there as one.
Hint: padiff map takes two recorded runs, or two SPECs of models."""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.describe("padiff map LEFT RIGHT [--inputs SPEC] [-o FILE] [OPTIONS]", _EPILOG)
    add = parser.add_argument
    add("reference", metavar="LEFT", help="SPEC of a model, or a recorded run; its names stand left")
    add("candidate", metavar="RIGHT", help="the same; its names stand right")
    _sides.add_arguments(parser, "reference", "candidate")
    add("--inputs", metavar="SPEC", help="a dict (keyword arguments) or tuple (positional); models need them")
    add("--candidate-inputs", metavar="SPEC", help="the right's, where its signature differs")
    add("--mapping", metavar="FILE", help="a mapping.yaml, or the SPEC of a padiff.LayerMap, that stands")
    add("--step", metavar="N", type=whole(0), help="of recorded runs, this step tells (default: the first of both)")
    add_rank(parser)
    add("-o", "--output", metavar="FILE", help="write it there (default: to standard output)")
    add("--overwrite", action="store_true", help="replace FILE where it exists")
    add("-q", "--quiet", action="store_true", help="print no progress")


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    from padiff.trace import is_url

    _sides.check(arguments, "reference", "candidate")
    runs = [is_url(name) or Path(name).exists() for name in (arguments.reference, arguments.candidate)]
    if any(runs) and not all(runs):
        raise UsageError(_ONE_RUN)
    if arguments.step is not None and not all(runs):
        msg = "--step chooses of what was recorded, and these are models.\nHint: leave --step out."
        raise UsageError(msg)
    if not all(runs):
        require_inputs(arguments, "map LEFT RIGHT --inputs my_port:inputs -o mapping.yaml")
    path = _path(arguments)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if arguments.quiet:
            from padiff.progress import silenced

            stack.enter_context(silenced())
        text = _of_runs(arguments) if all(runs) else _text(arguments, Sides(arguments, stack))
    if path is None:
        return 0, text.removesuffix("\n")
    write(path, text, "without -o it is written to standard output", anew=not arguments.overwrite)
    return 0, f"wrote {path}"


def _path(arguments: argparse.Namespace) -> Path | None:
    """Return the file; one that is there already is told before the work, not after it."""
    if arguments.output in (None, "-"):
        return None
    path = file_named(arguments.output, "-o")
    if path.exists() and not arguments.overwrite:
        msg = f"{path} is there already.\nHint: --overwrite replaces it; or choose another name."
        raise SpecError(msg)
    return path


def _of_runs(arguments: argparse.Namespace) -> str:
    from padiff.engine import mapping_of_runs

    given = {"mapping": arguments.mapping, "rank": arguments.rank, "step": arguments.step}
    return mapping_of_runs(arguments.reference, arguments.candidate, **given)


def _text(arguments: argparse.Namespace, sides: Sides) -> str:
    inputs, optional = sides.given(arguments)
    from padiff.engine import mapping_text

    return mapping_text(*sides.models, inputs, **optional)
