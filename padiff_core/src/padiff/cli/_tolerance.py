"""Read the tolerance that a command line gives."""

from __future__ import annotations

import argparse
from typing import Any

from padiff.cli._parser import UsageError, number, one_of

_FIXED, _BOUNDS = ("atol", "rtol", "compare_mode"), ("min", "max")
_ALL = (*_FIXED, "metric", *_BOUNDS)
_ONE_RULE = "Hint: --atol X --rtol X, or --metric NAME --max X, or neither: then the models' own rounding decides."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that give a tolerance."""
    add = parser.add_argument
    add("--atol", metavar="X", type=number(), help="absolute tolerance, instead of the measured one")
    add("--rtol", metavar="X", type=number(), help="relative tolerance, instead of the measured one")
    add(
        "--compare-mode",
        metavar="MODE",
        type=one_of("strict", "mean"),
        help="how the tolerance is applied: strict or mean",
    )
    add("--metric", metavar="NAME", help="a metric instead: max_abs, rel_l2, or one that a plugin contributes")
    add("--min", metavar="X", type=number(signed=True), help="smallest value of the metric that passes")
    add("--max", metavar="X", type=number(signed=True), help="largest value of the metric that passes")


def check(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` where the options do not go together."""
    named = [name for name in _ALL if getattr(arguments, name) is not None]
    bounds, fixed = ([f"--{name}".replace("_", "-") for name in named if name in names] for names in (_BOUNDS, _FIXED))
    if fixed and arguments.metric:
        msg = f"{' and '.join(fixed)} beside --metric: only one rule can decide.\n{_ONE_RULE}"
        raise UsageError(msg)
    if bounds and not arguments.metric:
        msg = f"{' and '.join(bounds)} without --metric: bounds of what?\n{_ONE_RULE}"
        raise UsageError(msg)


def given(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return the tolerance; None where none was given."""
    found = {name: getattr(arguments, name) for name in _ALL}
    return {name: value for name, value in found.items() if value is not None} or None
