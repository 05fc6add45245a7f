"""Go along the dotted paths of a model's modules and parameters; that of the model itself is empty."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NUMBER = re.compile(r"\d+")
REPEATED = re.compile(r"(?<![^.])\d+(?![^.])|\d+(?=\.)")
"""The number of a repeated layer in a path: `layers.0`, or `layer0` of what holds layers (`conv1` is no repetition)."""


def joined(path: str, name: str) -> str:
    """Return the path of what lies in a module under a name."""
    return f"{path}.{name}" if path else name


def parent(path: str) -> str:
    """Return the path of the module that something lies in."""
    return path.rpartition(".")[0]


def last(path: str) -> str:
    """Return the name that something has in the module that it lies in."""
    return path.rpartition(".")[2]


def unnumbered(path: str) -> str:
    """Return a path with a sign for each number: those of repeated modules are the same."""
    return _NUMBER.sub("#", path)


def upwards(path: str) -> Iterator[str]:
    """Yield a path and those of the modules around it, the innermost first and the model itself last."""
    yield path
    while path:
        path = parent(path)
        yield path


def downwards(path: str) -> Iterator[str]:
    """Yield the paths of what something lies in, the outermost first, and its own; that of the model itself is none."""
    return filter(None, reversed([*upwards(path)]))


def below(path: str, top: str) -> str:
    """Return what something is called below a module, nothing where it is not below."""
    return path if not top else path.removeprefix(f"{top}.") if path.startswith(f"{top}.") else ""


def is_at(path: str, top: str) -> bool:
    """Return whether something is a module, or below."""
    return path == top or below(path, top) != ""


def innermost(paths: Iterable[str]) -> str:
    """Return the path of the innermost module that is, or holds, all that has some paths."""
    return max(set[str].intersection(*({*upwards(path)} for path in paths)), key=len)
