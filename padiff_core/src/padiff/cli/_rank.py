"""Choose one rank of recorded runs that hold several."""

from __future__ import annotations

import argparse

from padiff.cli._parser import whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    text = "take this rank, where a run holds several (or name it behind the folder: dump/rank1)"
    parser.add_argument("--rank", metavar="N", type=whole(0), help=text)
