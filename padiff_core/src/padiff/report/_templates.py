"""Fill the templates of phrases with data: Python's own formats, and names for those of lists, settings and ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any

from padiff.grouping import grouped

Data = Mapping[str, Any]
Phrase = str | Callable[[Data], str]
"""A template of the data's own names, or a function of the data."""
OTHER = {"reference": "candidate", "candidate": "reference"}
_NAMED = 3
"""How many names a phrase lists."""
_WHOLE = re.compile(r"(?<![\w.])\d+(?![\w.])")
"""A whole number by itself."""
_EACH = 2
"""How many causes that are alike are told each."""
_RANKS = 8
"""How many ranks are named."""


def said(phrase: Phrase, data: Data) -> str:
    """Return a phrase with its data filled in; beside these ``{other}`` is the side that ``side`` is not."""
    if callable(phrase):
        return phrase(data)
    return _Filling().vformat(phrase, (), {"other": OTHER.get(data.get("side", ""), ""), **data})


def all_causes(told: Sequence[str]) -> str:
    """Return several causes in a row; of those that differ in whole numbers alone, as the rounds of a loop do, one."""
    alike = grouped(told, lambda cause: _WHOLE.sub("", cause)).values()
    return "; and ".join(one for causes in alike for one in _in_short(causes))


def _in_short(causes: Sequence[str]) -> Iterator[str]:
    if len(causes) <= _EACH:
        yield from causes
    else:
        yield f"{causes[0]}; and {len(causes) - 1} more that differ from this in numbers alone"


def few(names: Sequence[str]) -> str:
    """Return the first names in one line, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def ranks(numbers: Sequence[int]) -> str:
    """Return ranks in words."""
    more = [f"{len(numbers) - _RANKS} more"] if len(numbers) > _RANKS else []
    named = [str(rank) for rank in numbers[:_RANKS]] + more
    if len(named) == 1:
        return f"rank {named[0]}"
    return f"ranks {', '.join(named[:-1])} and {named[-1]}"


def setting(value: Any) -> str:
    """Return a setting in words: a text, or which ranks have which."""
    if isinstance(value, str):
        return value
    return ", ".join(f"{own} on {ranks(some)}" for own, some in zip(value["values"], value["ranks"], strict=True))


def short(location: str) -> str:
    """Return a path relative to the working directory where it lies below that."""
    return location.removeprefix(os.getcwd() + os.sep)


def _span(lines: Sequence[str]) -> str:
    """Return the first and the last line of some code."""
    file, _, first = lines[0].rpartition(":")
    other, _, last = lines[-1].rpartition(":")
    if len(lines) == 1:
        return f"{short(file)}:{first}"
    return f"{short(file)}:{first}-{last}" if file == other else f"{short(lines[0])} to {short(lines[-1])}"


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "few": few,
    "quoted": lambda names: few([repr(name) for name in names]),
    "all": lambda names: ", ".join(map(str, names)),
    "and": " and ".join,
    "or": " or ".join,
    "list": lambda values: str(list(values)),
    "count": lambda values: str(len(values)),
    "times": lambda count: "once" if count == 1 else f"{count} times",
    "module": lambda path: repr(path) if path else "the model",
    "holder": lambda path: path or "the model",
    "input": lambda path: path or "[0]",
    "ranks": ranks,
    "span": _span,
    "setting": setting,
}


class _Filling(Formatter):
    """What fills templates; where a format is one of the names above, it says how a value reads."""

    def format_field(self, value: Any, format_spec: str) -> str:
        say = _FORMATS.get(format_spec)
        return say(value) if say is not None else str(super().format_field(value, format_spec))
