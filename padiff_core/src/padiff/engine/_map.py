"""Write the mapping file of two models, or recorded runs: what padiff found by itself to belong together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from padiff.alignment import MappingFile, read_mapping, written_mapping
from padiff.engine._diff import diff
from padiff.engine._matched_runs import matched_runs, steps_of
from padiff.engine._open import opened
from padiff.isolation import side_of
from padiff.judging import matching_of
from padiff.report import Matching
from padiff.trace import Description

PathLike = str | os.PathLike[str]
_APART = "The two do not compute the same (`padiff diff` says where): what differs may be matched wrongly."
_UNRUN = "Of recorded runs the structure was matched; whether both compute the same was not asked."


def mapping_text(left: Any, right: Any, inputs: Any, *, candidate_inputs: Any = None, mapping: Any = None) -> str:
    """Run two models and return the mapping file that says which module of the left is which of the right.

    The right is given the left's parameters. With a ``mapping`` what that says stands. Raises what `diff` raises.
    """
    report = diff(left, right, inputs, candidate_inputs=candidate_inputs, mapping=mapping, phase="forward")
    return _text(report.mapping, side_of(left).about, side_of(right).about, "" if report.aligned else _APART)


def mapping_of_runs(
    left: PathLike,
    right: PathLike,
    *,
    mapping: PathLike | None = None,
    rank: int | None = None,
    step: int | None = None,
) -> str:
    """Return the mapping file that says which module of a recorded run is which of another's.

    With a ``mapping`` file what that says stands; ``rank`` is as for `opened`; ``step`` tells, or else the first that
    both have. Raises `InputError` for what holds no run, or not the step.
    """
    file = MappingFile("", ()) if mapping is None else read_mapping(mapping)
    ours, theirs = opened(left, rank), opened(right, rank)
    mine, yours = steps_of(ours, theirs, step)[0]
    known = matched_runs(ours, theirs, (ours.trace(mine), theirs.trace(yours)), file)
    return _text(matching_of(known.alignment, known, ()), ours.about, theirs.about, _UNRUN)


def _text(matching: Matching, left: Description, right: Description, remark: str) -> str:
    rules = written_mapping(matching, left, right)
    return "\n".join([*_remarks(matching, left, right, remark), "", rules or "# Equal names say it all.", ""])


def _remarks(matching: Matching, left: Description, right: Description, remark: str) -> Iterator[str]:
    yield "# Written by `padiff map`: left and right names of what belongs together; equal names need no line."
    yield f"# left   {_printed(f'{left.framework}: {left.class_name}')}"
    yield f"# right  {_printed(f'{right.framework}: {right.class_name}')}"
    if remark:
        yield f"# {remark}"
    for side, word in (("reference", "left"), ("candidate", "right")):
        for path in matching.unmatched_modules.get(side, ()):
            yield f"# only on the {word}: {_printed(path)}"


def _printed(name: str) -> str:
    return name if name.isprintable() else ascii(name)
