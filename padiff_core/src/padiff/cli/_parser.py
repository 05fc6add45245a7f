"""A parser of arguments whose errors are two lines: what was wrong, and what was probably meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from padiff.errors import PadiffError, did_you_mean

_WIDTH = 80


class UsageError(PadiffError):
    """A command line that makes no sense."""


def require_inputs(arguments: argparse.Namespace, usage: str) -> None:
    """Raise `UsageError` where a command line names no inputs."""
    if not arguments.inputs:
        seen = "--inputs is missing: a dict or a tuple of arrays, or a function that returns one."
        msg = f"{seen}\nHint: usage: padiff {usage}"
        raise UsageError(msg)


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError`, knows its options by name, and writes help that fits 80 columns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": _narrow, "allow_abbrev": False, **kwargs})

    def describe(self, usage: str, epilog: str) -> None:
        """Set what help shows before and behind the arguments; the lines stay as they are."""
        self.formatter_class, self.usage, self.epilog = _as_written, usage, epilog

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the usage behind the message, and behind the hint that this may bring along."""
        seen, _, hint = message.removeprefix("argument ").partition("\nHint: ")
        msg = f"{seen}.\nHint: {f'{hint} ' if hint else ''}{self.format_usage().strip()}"
        raise UsageError(msg)

    def check_unknown(self, words: list[str]) -> None:
        """Raise `UsageError` for words of a command line that no option took."""
        if not words:
            return
        name = next((word for word in words if word.startswith("-")), words[0]).partition("=")[0]
        if not name.startswith("-"):
            self.error(f"{name!r} is one argument too many")
        known = re.findall(r"--[a-z][a-z-]+", self.format_help())
        known += ["--tolerance"] if "--atol" in known else []
        hint = did_you_mean(name, known, "{}").replace("--tolerance", "--atol, --rtol or --metric")
        hint = hint or f"`{self.prog} --help` lists all options;"
        self.error(f"there is no option {name}\nHint: {hint}")


def _narrow(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=26, width=_WIDTH)


def _as_written(prog: str) -> argparse.HelpFormatter:
    """Return what writes help with an epilog whose lines stay as they are."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=_WIDTH)


def add_rank(parser: argparse.ArgumentParser) -> None:
    """Declare the option that chooses one rank of a run that holds several."""
    text = "take this rank, where a run holds several (or name it behind the folder: dump/rank1)"
    parser.add_argument("--rank", metavar="N", type=whole(0), help=text)


def one_of(*choices: str) -> Callable[[str], str]:
    """Return what reads one of several words."""

    def read(text: str) -> str:
        if text not in choices:
            hint = did_you_mean(text, choices, "{}")
            msg = f"{text!r} is none of {', '.join(choices)}\nHint: {hint}"
            raise argparse.ArgumentTypeError(msg)
        return text

    return read


def whole(least: int) -> Callable[[str], int]:
    """Return what reads a whole number from ``least`` on."""

    def read(text: str) -> int:
        if not text.lstrip("+-").isdecimal() or not least <= int(text) < 2**63:
            msg = f"{text!r} is not a whole number from {least}"
            raise argparse.ArgumentTypeError(msg)
        return int(text)

    return read


def number(*, signed: bool = False) -> Callable[[str], float]:
    """Return what reads a finite number from 0, or with ``signed`` any."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not abs(value) < float("inf") or (value < 0 and not signed):
            msg = f"{text!r} is not a number{'' if signed else ' from 0'}"
            raise argparse.ArgumentTypeError(msg)
        return value

    return read
