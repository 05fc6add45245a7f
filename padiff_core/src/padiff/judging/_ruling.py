"""Hold the verdict on a suspect, and why a call could not be asked."""

from __future__ import annotations

import textwrap
from typing import Any

import attrs

from padiff.forcing import NotRepeated
from padiff.report import Cause, Evidence, Figures, Verdict

_LONGEST = 120
"""Characters of an error's first line that are kept."""
_RECORDED = "recorded"
"""Stands for an error: of that side only a recorded run is left."""


@attrs.frozen
class Ruling:
    """The verdict on a suspect, and the evidence for it."""

    verdict: Verdict
    figures: Figures
    evidence: tuple[Evidence, ...]
    settled: bool = True
    """Whether the call was replayed by itself: what is seen in the whole model only may be another's."""
    hint: Cause | None = None
    """The cause, where settling found one."""


@attrs.frozen
class Refusal:
    """The reason why a call tells nothing in a wider type: a side cannot run there, or the value does not arise."""

    refused_by: str | None = None
    error: str = ""


DOES_NOT_ARISE = Refusal()


def refusal(side: str, error: Exception) -> Refusal:
    """Return that a side cannot run there, with the first line of its error."""
    if isinstance(error, NotRepeated):
        return Refusal(side, _RECORDED)
    said = textwrap.shorten(next(iter(str(error).strip().splitlines()), ""), _LONGEST, placeholder=" ...")
    return Refusal(side, f"{type(error).__name__}: {said}")


def reason(refused: Refusal | None) -> dict[str, Any]:
    """Return a refusal as figures of a piece of evidence."""
    return attrs.asdict(refused or DOES_NOT_ARISE)
