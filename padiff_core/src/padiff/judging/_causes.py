"""Name the causes that both sides' records show: hyper-parameters and arguments that differ."""

from __future__ import annotations

from collections.abc import Sequence

from padiff.alignment import Pair
from padiff.report import Cause
from padiff.trace import Contrast, called_otherwise, contrasts, contrasts_inside

__all__ = ["cause_between", "cause_of"]


def cause_of(found: Sequence[Contrast]) -> Cause | None:
    """Return hyper-parameters that differ as a cause, or None where none does."""
    if not found:
        return None
    return Cause("settings", {c.setting: {"reference": c.reference, "candidate": c.candidate} for c in found})


def cause_between(pair: Pair) -> Cause | None:
    """Return in what two matched calls differ but for their values: settings, or an operation's arguments."""
    ours, theirs = pair.reference, pair.candidate
    found = contrasts(ours, theirs) or contrasts_inside(ours, theirs)
    if found:
        return cause_of(found)
    called = called_otherwise(ours, theirs)
    return called and Cause("arguments", {"reference": called[0], "candidate": called[1]})
