"""Say in the words of the command line what padiff says in those of Python, and fold it for a terminal."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import TextIO

_IN_OPTIONS = (
    (r"(loss|optimizers)=\(for_the_reference, for_the_candidate\)", r"--\1 SPEC of a pair, the reference's first"),
    (r"\bphase='(\w+)'", r"--phase \1"),
    (r"\b(seed|steps)=(\d+)", r"--\1 \2"),
    (r"\boperations=True", "--operations"),
    (r"\btransfer=False", "--no-transfer"),
    (r"\bcandidate_inputs=", "--candidate-inputs"),
    (r"\binputs=\{.x.: array\}, of", "a dict or a tuple of"),
    (r"\binputs=\{\.\.\.\}", "{...}"),
    (r"\bmapping='mapping.yaml'", "--mapping mapping.yaml"),
    (r"\bpython= is\b", "the option's PYTHON is"),
    (r"\(inputs\)", "(it)"),
    (r"\bthe tolerance\b", "--metric"),
    (r"(padiff\.)?diff\(\)", "padiff diff"),
)
"""What Python code would write -> what a command line has for it."""


def in_options(message: str) -> str:
    """Return a message with options in place of Python's keyword arguments."""
    for pattern, option in _IN_OPTIONS:
        message = re.sub(pattern, option, message)
    return message


def folded(text: str, stream: TextIO) -> str:
    """Return a text in lines that fit a terminal; in a pipe it stays as it is."""
    if not stream.isatty():
        return text
    width = min(shutil.get_terminal_size().columns, 80)
    lines = (textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join("\n".join(part) for part in lines)
