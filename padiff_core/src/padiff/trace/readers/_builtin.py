"""Contribute padiff's own readers through the hook that every plugin has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from padiff.plugins import Reader, hookimpl

_ROOM = "padiff.trace.readers"


def _later(module: str, name: str) -> Callable[[Path], Any]:
    """Return a function of a module that is imported when it is called."""
    return lambda path: getattr(import_module(f"{_ROOM}.{module}"), name)(path)


def _reader(name: str, module: str, function: str, recognizes: str, doc: str) -> Reader:
    return Reader(name, _later(module, function), _later(module, recognizes), doc=doc)


@hookimpl
def padiff_readers() -> Iterator[Reader]:
    """Return the built-in readers."""
    yield _reader(
        "msprobe", "_msprobe", "open_msprobe", "is_msprobe", "dumps of msprobe: dump.json, construct.json, stack.json"
    )
    yield _reader(
        "padiff-dump",
        "_padiff_dump",
        "open_padiff_dump",
        "is_padiff_dump",
        "dumps of PaDiff 0.3, and of create_model: report.json, params.json",
    )
    yield _reader("reprod_log", "_reprod_log", "open_reprod_log", "is_reprod_log", "dictionaries of reprod_log: .npy")
