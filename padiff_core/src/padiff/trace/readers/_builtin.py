"""Contribute padiff's own readers through the hook that every plugin has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from padiff.plugins import Reader, hookimpl

_READERS = {
    "msprobe": ("_msprobe", "dumps of msprobe: dump.json, construct.json, stack.json"),
    "padiff-dump": ("_padiff_dump", "dumps of PaDiff 0.3, and of create_model: report.json, params.json"),
    "reprod_log": ("_reprod_log", "dictionaries of reprod_log: .npy"),
}
"""Name of a reader -> its module, which has functions named after that, and what it reads."""


def _later(module: str, verb: str) -> Callable[[Path], Any]:
    """Return a function of a module that is imported when it is called."""
    return lambda path: getattr(import_module(f"padiff.trace.readers.{module}"), f"{verb}{module}")(path)


@hookimpl
def padiff_readers() -> Iterator[Reader]:
    """Return the built-in readers."""
    for name, (module, doc) in _READERS.items():
        yield Reader(name, _later(module, "open"), _later(module, "is"), doc=doc)
