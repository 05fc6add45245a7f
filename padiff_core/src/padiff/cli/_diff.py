"""Run ``padiff diff``."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from padiff.cli import _output, _sides, _tolerance
from padiff.cli._parser import Parser, UsageError, one_of, require_inputs, whole
from padiff.cli._sides import Sides

if TYPE_CHECKING:
    from padiff.report import Report

_EPILOG = """\
A SPEC is module:attribute or path/file.py:attribute; the working directory is
importable. A function or class is called without arguments; anything else is
taken as it is. What belongs to a side that runs in a process of its own is
loaded there: the inputs with the reference, a loss and optimizers (a SPEC for
each side, with a comma between) each with its side.

exit status: 0 aligned, 1 not aligned, 2 trouble
"""


_PHASES = "both, forward or backward (default both)"


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.describe("padiff diff REFERENCE CANDIDATE --inputs SPEC [OPTIONS]", _EPILOG)
    add = parser.add_argument
    add("reference", metavar="REFERENCE", help="SPEC of the model that is right by definition")
    add("candidate", metavar="CANDIDATE", help="SPEC of the model to check")
    _sides.add_arguments(parser, "reference", "candidate")
    add("--inputs", metavar="SPEC", help="a dict (keyword arguments) or tuple (positional); required")
    add("--candidate-inputs", metavar="SPEC", help="the candidate's, where its signature differs")
    add("--loss", metavar="SPEC", help="the loss: a function of the output, or one for each side")
    add("--optimizers", metavar="SPEC", help="both optimizers; a function gets (reference, candidate)")
    add("--steps", metavar="N", type=whole(1), default=1, help="training steps to run (default 1)")
    add("--phase", metavar="PHASE", type=one_of("both", "forward", "backward"), default="both", help=_PHASES)
    add("--no-transfer", action="store_true", help="leave the candidate's parameters as they are")
    add("--operations", action="store_true", help="compare functions, operators and tensor methods one by one too")
    add("--mapping", metavar="FILE", help="a mapping.yaml, or the SPEC of a padiff.LayerMap")
    _tolerance.add_arguments(parser)
    add("--seed", metavar="N", type=whole(0), default=0, help="seed of both frameworks (default 0)")
    _output.add_arguments(parser)


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    _tolerance.check(arguments)
    _sides.check(arguments, "reference", "candidate")
    require_inputs(arguments, "diff REFERENCE CANDIDATE --inputs my_port:inputs [OPTIONS]")
    if arguments.steps > 1 and not arguments.optimizers:
        msg = "--steps without --optimizers: every step would be the same.\nHint: --optimizers SPEC --steps N."
        raise UsageError(msg)
    wanted = _output.outputs(arguments)
    with contextlib.ExitStack() as stack:
        if any(output.path is None for output in wanted):
            # What the models print must not stand in the report.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if arguments.quiet:
            from padiff.progress import silenced

            stack.enter_context(silenced())
        report = _report(arguments, Sides(arguments, stack))
    return _output.written(report, wanted, arguments)


def _report(arguments: argparse.Namespace, sides: Sides) -> Report:
    inputs, optional = sides.given(arguments)
    if arguments.loss:
        optional["loss"] = sides.loss(arguments.loss)
    if arguments.optimizers:
        optional["optimizers"] = sides.optimizers(arguments.optimizers)
    from padiff.engine import diff

    return diff(
        *sides.models,
        inputs,
        steps=arguments.steps,
        phase=arguments.phase,
        transfer=not arguments.no_transfer,
        operations=arguments.operations,
        tolerance=_tolerance.given(arguments),
        seed=arguments.seed,
        **optional,
    )
