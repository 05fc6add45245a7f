"""Run ``padiff diff``."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from padiff.cli import _output, _sides
from padiff.cli._sides import Sides
from padiff.import_string import called

if TYPE_CHECKING:
    from padiff.report import Report

__all__ = ["add_arguments", "run"]

_EPILOG = """\
A SPEC is module:attribute or path/file.py:attribute; the working directory is importable. A function or
class is called without arguments; anything else is taken as it is. What belongs to a side that runs in a
process of its own is loaded there: the inputs with the reference, a loss and optimizers (a SPEC for each side,
with a comma between) each with its side.

exit status: 0 aligned, 1 not aligned, 2 trouble
"""


_TOLERANCE = ("atol", "rtol", "compare_mode", "metric", "min", "max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("reference", metavar="REFERENCE", help="SPEC of the model that is right by definition")
    add("candidate", metavar="CANDIDATE", help="SPEC of the model to check")
    _sides.add_arguments(parser)
    add("--inputs", metavar="SPEC", required=True, help="a dict (keyword arguments) or tuple (positional)")
    add("--candidate-inputs", metavar="SPEC", help="the candidate's, where its signature differs")
    add("--loss", metavar="SPEC", help="the loss: a function of the output, or one for each side")
    add("--optimizers", metavar="SPEC", help="both optimizers; a function gets (reference, candidate)")
    add("--steps", metavar="N", type=_positive, default=1, help="training steps to run (default 1)")
    add("--phase", choices=("both", "forward", "backward"), default="both", help="(default both)")
    add("--no-transfer", action="store_true", help="leave the candidate's parameters as they are")
    add("--operations", action="store_true", help="compare functions, operators and tensor methods one by one too")
    add("--mapping", metavar="SPEC", help="a padiff.LayerMap: pairs of modules, modules to ignore")
    add("--atol", metavar="X", type=float, help="absolute tolerance, instead of the measured one")
    add("--rtol", metavar="X", type=float, help="relative tolerance, instead of the measured one")
    add("--compare-mode", metavar="MODE", help="how the tolerance is applied: strict or mean")
    add("--metric", metavar="NAME", help="a metric instead: max_abs, rel_l2, or one that a plugin contributes")
    add("--min", metavar="X", type=float, help="smallest value of the metric that passes")
    add("--max", metavar="X", type=float, help="largest value of the metric that passes")
    add("--seed", metavar="N", type=int, default=0, help="seed of both frameworks (default 0)")
    _output.add_arguments(parser)
    add("--traceback", action="store_true", help="show Python's traceback on an error")


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    wanted = _output.outputs(arguments)
    with contextlib.ExitStack() as stack:
        if any(output.path is None for output in wanted):
            # What the models print must not stand in the report.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if arguments.quiet:
            from padiff.progress import silenced

            stack.enter_context(silenced())
        report = _report(arguments, Sides(arguments, stack))
    well, text = _output.written(report, wanted, quiet=arguments.quiet, mapping=arguments.show_mapping)
    return (2 if not well else 0 if report.aligned else 1), text


def _report(arguments: argparse.Namespace, sides: Sides) -> Report:
    inputs = sides.value(arguments.inputs, 0)
    optional: dict[str, Any] = {}
    if arguments.candidate_inputs:
        optional["candidate_inputs"] = sides.value(arguments.candidate_inputs, 1)
    if arguments.loss:
        optional["loss"] = sides.loss(arguments.loss)
    if arguments.optimizers:
        optional["optimizers"] = sides.optimizers(arguments.optimizers)
    if arguments.mapping:
        optional["mapping"] = called(arguments.mapping)
    tolerance = {name: getattr(arguments, name) for name in _TOLERANCE}
    tolerance = {name: value for name, value in tolerance.items() if value is not None}
    from padiff.engine import diff

    return diff(
        *sides.models,
        inputs,
        steps=arguments.steps,
        phase=arguments.phase,
        transfer=not arguments.no_transfer,
        operations=arguments.operations,
        tolerance=tolerance or None,
        seed=arguments.seed,
        **optional,
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        msg = f"{value} is not at least 1"
        raise argparse.ArgumentTypeError(msg)
    return value
