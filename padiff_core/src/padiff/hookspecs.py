"""List the hooks that a plugin may implement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from padiff.adapter import AdapterInfo

__all__ = ["hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker("padiff")
hookimpl = pluggy.HookimplMarker("padiff")


@hookspec
def padiff_adapters() -> Iterable[AdapterInfo]:  # type: ignore[empty-body]
    """Return what is known of each framework that this plugin serves, without importing it."""
