"""Run ``padiff compare``."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from padiff.cli import _output, _sides, _tolerance
from padiff.cli._parser import Parser, UsageError, add_rank, whole
from padiff.cli._sides import Built

if TYPE_CHECKING:
    from padiff.report import Report

_EPILOG = """\
REFERENCE and CANDIDATE are directories that padiff.record() or `padiff record`
wrote, or dumps that a reader knows (`padiff plugins` lists them); no framework
is needed. With --force a model is run in place of the candidate's run, and fed
what the reference's run recorded: its weights, its inputs, and what each call
took. A SPEC is module:attribute or path/file.py:attribute; the working
directory is importable.

exit status: 0 aligned, 1 not aligned, 2 trouble
"""
_NO_CANDIDATE = """\
there is no candidate to compare with.
Hint: usage: padiff compare REFERENCE CANDIDATE, or padiff compare REFERENCE --force my_port:build"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.describe("padiff compare REFERENCE [CANDIDATE] [--force SPEC] [OPTIONS]", _EPILOG)
    add = parser.add_argument
    add("reference", metavar="REFERENCE", help="directory of the run that is right by definition")
    add("candidate", metavar="CANDIDATE", nargs="?", help="directory of the run to check")
    add("--step", metavar="N", type=whole(0), help="compare this step alone (default: every step of both)")
    add_rank(parser)
    add("--cache", metavar="FILE", help="keep what is measured: go on from there, or under another tolerance")
    add("--mapping", metavar="FILE", help="a mapping file, or SPEC of a padiff.LayerMap")
    add("--force", metavar="SPEC", help="run this model against the reference's run: gives sources, as diff does")
    add("--inputs", metavar="SPEC", help="the model's inputs, where its signature differs (default: the recorded ones)")
    add("--loss", metavar="SPEC", help="the loss, a function of the output (default: the recorded gradients)")
    add("--optimizer", metavar="SPEC", help="a function of the model that gives its optimizer; its steps are compared")
    _sides.add_arguments(parser, "candidate")
    _tolerance.add_arguments(parser)
    _output.add_arguments(parser)


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    _tolerance.check(arguments)
    for option in ("inputs", "loss", "optimizer", "candidate_python") if arguments.force is None else ():
        if getattr(arguments, option) is not None:
            msg = f"--{option.replace('_', '-')} serves a model that is run, and none is named.\nHint: --force SPEC."
            raise UsageError(msg)
    _sides.check(arguments, "candidate")
    if arguments.force is not None and arguments.cache is not None:
        msg = "--cache keeps what is measured of two recorded runs, and with --force a model is run here.\n"
        raise UsageError(msg + "Hint: leave --cache out, or record the model, and compare both runs.")
    if arguments.candidate is None and arguments.force is None:
        raise UsageError(_NO_CANDIDATE)
    wanted = _output.outputs(arguments)
    with contextlib.ExitStack() as stack:
        if arguments.force is not None:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))  # what the model prints
        report = _report(arguments, stack)
    return _output.written(report, wanted, arguments)


def _report(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Report:
    optional: dict[str, Any] = {}
    if arguments.force is not None:
        built = Built(arguments.force, arguments.candidate_python, arguments.timeout, stack)
        optional["force"] = built.model()
        for name, found in (("inputs", built.value), ("loss", built.loss), ("optimizer", built.optimizer)):
            spec = getattr(arguments, name)
            if spec is not None:
                optional[name] = found(spec)
    if arguments.mapping:
        optional["mapping"] = _sides.mapping_of(arguments.mapping)
    from padiff.engine import compare, opened

    runs = [opened(path, arguments.rank) for path in (arguments.reference, arguments.candidate) if path is not None]
    return compare(
        *runs,
        tolerance=_tolerance.given(arguments),
        step=arguments.step,
        cache=arguments.cache,
        **optional,
    )
