"""Contribute padiff's own readers through the hook that every plugin has."""

from __future__ import annotations

from collections.abc import Iterator

from padiff.plugins import Reader, hookimpl

__all__ = ["padiff_readers"]


@hookimpl
def padiff_readers() -> Iterator[Reader]:
    """Return the built-in readers."""
    yield from ()
