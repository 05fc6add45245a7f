"""Assert in a test of one's own that two models compute the same."""

from __future__ import annotations

from typing import Any

from padiff.engine import diff
from padiff.report import Report


def assert_aligned(reference: Any, candidate: Any, inputs: Any, **kwargs: Any) -> Report:
    """Compare two models with `padiff.diff` and return its report; all arguments are those of `padiff.diff`.

    Raises ``AssertionError`` with the printed report where they part, and `PadiffError` where they cannot be compared.
    """
    __tracebackhide__ = True
    report = diff(reference, candidate, inputs, **kwargs)
    if not report.aligned:
        raise AssertionError(str(report))
    return report
