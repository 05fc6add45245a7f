"""Contribute padiff's own metrics and formats through the hooks that every plugin has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from padiff.numerics import difference
from padiff.plugins import Metric, Renderer, hookimpl
from padiff.report import Report, to_json, to_text


def _html(report: Report) -> str:
    from padiff.report._html import graph_of_report, page

    return page(graph_of_report(report))


@hookimpl
def padiff_metrics() -> Iterator[Metric]:
    """Return the figures that every report shows."""
    yield Metric(
        "rel_l2",
        lambda *both: difference(*both).rel_l2,
        doc="norm of the difference divided by the norm of the reference",
    )
    yield Metric("max_abs", lambda *both: difference(*both).max_abs, doc="largest absolute difference of one element")


@hookimpl
def padiff_renderers() -> Iterator[Renderer]:
    """Return the built-in formats."""
    plain = partial(to_text, color=False, width=0)
    yield Renderer("text", plain, suffixes=(".txt",), doc="for a reader, without colours")
    yield Renderer("json", to_json, suffixes=(".json",), doc="for a program; docs/report.md has the schema")
    yield Renderer("html", _html, suffixes=(".html", ".htm"), doc="both models side by side, in one page for a browser")
