"""List the hooks that a plugin may implement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from padiff.adapter import AdapterInfo, Metric, Reader, Renderer, SpecialTransfer

hookspec = pluggy.HookspecMarker("padiff")


@hookspec
def padiff_adapters() -> Iterable[AdapterInfo]:  # type: ignore[empty-body]
    """Return what is known of each framework that this plugin serves, without importing it."""


@hookspec
def padiff_metrics() -> Iterable[Metric]:  # type: ignore[empty-body]
    """Return metrics that the report shows for each finding, and that a user may choose as the tolerance."""


@hookspec
def padiff_transfers() -> Iterable[SpecialTransfer]:  # type: ignore[empty-body]
    """Return how the parameters of one class of module become those of another, where no table can say it."""


@hookspec
def padiff_renderers() -> Iterable[Renderer]:  # type: ignore[empty-body]
    """Return formats in which a report can be written."""


@hookspec
def padiff_readers() -> Iterable[Reader]:  # type: ignore[empty-body]
    """Return what reads the runs that other tools recorded."""
