"""Run ``padiff compare``."""

from __future__ import annotations

import argparse

from padiff.cli import _output, _rank, _sides, _tolerance
from padiff.cli._parser import as_written, whole

__all__ = ["add_arguments", "run"]

_EPILOG = """\
Both arguments are directories that padiff.record() or `padiff record` wrote, or
dumps that a reader knows (`padiff plugins` lists them); no framework is needed.

exit status: 0 aligned, 1 not aligned, 2 trouble
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.formatter_class = as_written
    parser.usage = "padiff compare REFERENCE CANDIDATE [OPTIONS]"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("reference", metavar="REFERENCE", help="directory of the run that is right by definition")
    add("candidate", metavar="CANDIDATE", help="directory of the run to check")
    add("--step", metavar="N", type=whole(0), help="compare this step alone (default: every step of both)")
    _rank.add_arguments(parser)
    add("--cache", metavar="FILE", help="keep what is measured: go on from there, or under another tolerance")
    add("--mapping", metavar="FILE", help="a mapping file, or SPEC of a padiff.LayerMap")
    _tolerance.add_arguments(parser)
    _output.add_arguments(parser)
    add("--traceback", action="store_true", help="show Python's traceback on an error")


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    _tolerance.check(arguments)
    wanted = _output.outputs(arguments)
    from padiff.engine import compare, opened

    report = compare(
        opened(arguments.reference, arguments.rank),
        opened(arguments.candidate, arguments.rank),
        mapping=_sides.mapping_of(arguments.mapping) if arguments.mapping else None,
        tolerance=_tolerance.given(arguments),
        step=arguments.step,
        cache=arguments.cache,
    )
    well, text = _output.written(report, wanted, quiet=arguments.quiet, mapping=arguments.show_mapping)
    return (2 if not well else 0 if report.aligned else 1), text
