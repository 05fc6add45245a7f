"""Run ``padiff graph``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from padiff.cli._output import write
from padiff.cli._parser import Parser, UsageError, add_rank, one_of, whole
from padiff.import_string import SpecError

_EPILOG = """\
A RUN is a directory that padiff recorded to, or a dump that a reader knows
(`padiff plugins` lists them). msprobe's command works too, its msprobe
replaced by padiff, and the page is then OUTPUT/graph.html:

  padiff graph -f pytorch -i compare.json -o output -lm mapping.yaml

exit status: 0 drawn, 2 trouble
"""
_PAGE = "graph.html"


class _Sides(NamedTuple):
    """The two runs, left and right, and what each is called."""

    paths: tuple[str, str]
    labels: tuple[str, str] = ("reference", "candidate")


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.describe("padiff graph RUN RUN -o graph.html [-lm mapping.yaml]", _EPILOG)
    add = parser.add_argument
    add("reference", metavar="RUN", nargs="?", help="the reference, on the left")
    add("candidate", metavar="RUN", nargs="?", help="the candidate, on the right")
    add("-o", "--output", metavar="FILE", required=True, help="the page, or a folder for it")
    add("-lm", "--mapping", "--layer_mapping", metavar="FILE", help="a mapping.yaml")
    add("-i", "--input", metavar="FILE", help="msprobe's compare.json: names npu_path (left) and bench_path")
    add(
        "-f",
        "--framework",
        metavar="NAME",
        type=one_of("pytorch", "mindspore"),
        help="taken as given: dumps tell theirs",
    )
    add("--step", metavar="N", type=whole(0), help="the one step to draw (default: all that both have)")
    add_rank(parser)


def run(arguments: argparse.Namespace) -> tuple[int, str]:
    """Return the exit status, and what belongs on stdout."""
    sides = _sides(arguments)
    path = _path(arguments.output)
    from padiff.engine import graph_of_runs, opened
    from padiff.report import page

    runs = [opened(side, arguments.rank) for side in sides.paths]
    graph = graph_of_runs(*runs, mapping=arguments.mapping, step=arguments.step, labels=sides.labels)
    write(path, page(graph), "-o FILE wants a place that can be written to")
    return 0, f"{path}: {graph.headline}"


def _sides(arguments: argparse.Namespace) -> _Sides:
    both = (arguments.reference, arguments.candidate)
    if arguments.input:
        if any(both):
            msg = "two runs beside --input.\nHint: name the runs, or the compare.json that names them."
            raise UsageError(msg)
        return _named_in(Path(arguments.input))
    if not all(both):
        msg = "two runs are needed.\nHint: usage: padiff graph RUN RUN -o graph.html [-lm mapping.yaml]"
        raise UsageError(msg)
    return _Sides(both)


def _named_in(file: Path) -> _Sides:
    """Return the runs that a compare.json names, msprobe's way: from the working directory, or else from the file's."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"cannot read {file}: {reason}.\nHint: --input FILE names a compare.json."
        raise SpecError(msg) from error
    keys = ("npu_path", "bench_path")
    paths = [found.get(key) if isinstance(found, dict) else None for key in keys]
    if not all(isinstance(path, str) and path for path in paths):
        msg = f'{file} names no two dumps.\nHint: it looks so: {{"npu_path": "dump_a", "bench_path": "dump_b"}}'
        raise SpecError(msg)
    from padiff.trace import is_url

    ours, theirs = (
        path if is_url(path) or Path(path).exists() else str(file.parent / path) for path in map(str, paths)
    )
    return _Sides((ours, theirs), keys)


def _path(output: str) -> Path:
    """Return the file to write: a page's name as it is, or the page of a folder."""
    path = Path(output)
    return path if path.suffix in (".html", ".htm") and not path.is_dir() else path / _PAGE
