"""Contribute padiff's own readers through the hook that every plugin has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from padiff.plugins import Reader, hookimpl

if TYPE_CHECKING:
    from padiff.trace import Run

__all__ = ["padiff_readers"]


def _is_msprobe(path: Path) -> bool:
    from padiff.trace.readers._msprobe import is_msprobe

    return is_msprobe(path)


def _msprobe(path: Path) -> Run:
    from padiff.trace.readers._msprobe import open_msprobe

    return open_msprobe(path)


@hookimpl
def padiff_readers() -> Iterator[Reader]:
    """Return the built-in readers."""
    yield Reader("msprobe", _msprobe, _is_msprobe, doc="dumps of msprobe: dump.json, construct.json, stack.json")
