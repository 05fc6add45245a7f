"""Write the mapping file of two models: what padiff found by itself to belong together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from padiff.alignment import written_mapping
from padiff.engine._diff import diff
from padiff.isolation import side_of
from padiff.report import Report
from padiff.trace import Description

__all__ = ["mapping_text"]


def mapping_text(left: Any, right: Any, inputs: Any, *, candidate_inputs: Any = None, mapping: Any = None) -> str:
    """Run two models and return the mapping file that says which module of the left is which of the right.

    The right is given the left's parameters. With a ``mapping`` what that says stands. Raises what `diff` raises.
    """
    report = diff(left, right, inputs, candidate_inputs=candidate_inputs, mapping=mapping, phase="forward")
    return _text(report, side_of(left).about, side_of(right).about)


def _text(report: Report, left: Description, right: Description) -> str:
    rules = written_mapping(report.mapping, left, right)
    return "\n".join([*_remarks(report), "", rules or "# Equal names say it all.", ""])


def _remarks(report: Report) -> Iterator[str]:
    yield "# Written by `padiff map`: left and right names of what belongs together; equal names need no line."
    yield f"# left   {_printed(report.reference)}"
    yield f"# right  {_printed(report.candidate)}"
    if not report.aligned:
        yield "# The two do not compute the same (`padiff diff` says where): what differs may be matched wrongly."
    for side, word in (("reference", "left"), ("candidate", "right")):
        for path in report.mapping.unmatched_modules.get(side, ()):
            yield f"# only on the {word}: {_printed(path)}"


def _printed(name: str) -> str:
    return name if name.isprintable() else ascii(name)
