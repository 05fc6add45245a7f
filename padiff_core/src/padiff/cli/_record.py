"""Run ``padiff record``."""

from __future__ import annotations

import argparse
import contextlib
import sys

from padiff.cli._order import import_in_order
from padiff.cli._parser import Parser, UsageError, one_of, require_inputs, whole
from padiff.cli._sides import loss_of
from padiff.import_string import called

_EPILOG = """\
A SPEC is module:attribute or path/file.py:attribute; the working directory is
importable. A function or class is called without arguments. The run is the one
that `padiff diff` makes of its reference: the same seed, and the same gradients
of the outputs where no loss is given.

exit status: 0 recorded, 2 trouble
"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.describe("padiff record MODEL --inputs SPEC -o DIR [OPTIONS]", _EPILOG)
    add = parser.add_argument
    add("model", metavar="MODEL", help="SPEC of the model")
    add("--inputs", metavar="SPEC", help="a dict (keyword arguments) or tuple (positional); required")
    add("-o", "--output", metavar="DIR", help="directory to record to, new or empty; required")
    add("--loss", metavar="SPEC", help="the loss, a function of the output")
    values = "tensors, sketch, summary or structure (default tensors)"
    kept = one_of("tensors", "sketch", "summary", "structure")
    add("--values", metavar="WHAT", type=kept, default="tensors", help=values)
    add("--modules", metavar="PATHS", help="keep values of these modules alone: paths with commas between, * for any")
    add("--forward", action="store_true", help="run forward only")
    add("--operations", action="store_true", help="record functions, operators and tensor methods too")
    add("--seed", metavar="N", type=whole(0), default=0, help="seed of the framework (default 0)")


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    require_inputs(arguments, "record MODEL --inputs my_port:inputs -o DIR")
    if not arguments.output:
        msg = "-o is missing: the directory to record to, new or empty.\n"
        msg += "Hint: padiff record MODEL --inputs SPEC -o run_a"
        raise UsageError(msg)
    with contextlib.redirect_stdout(sys.stderr):  # what the model prints
        import_in_order([arguments.model])
        model = called(arguments.model)
        inputs = called(arguments.inputs)
        loss = loss_of(arguments.loss) if arguments.loss else None
        from padiff.engine import record_once

        record_once(
            model,
            inputs,
            arguments.output,
            loss=loss,
            values=arguments.values,
            modules=arguments.modules.split(",") if arguments.modules else None,
            backward=not arguments.forward,
            operations=arguments.operations,
            seed=arguments.seed,
        )
    from padiff.cli._show import headline
    from padiff.trace import open_run

    return 0, headline(open_run(arguments.output))
