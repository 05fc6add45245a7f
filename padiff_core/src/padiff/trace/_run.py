"""What was recorded of a model over some steps, wherever it lies: a directory of padiff's, or another tool's dump."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

from padiff.errors import InputError
from padiff.trace._model import Description
from padiff.trace._records import Trace

Kept = Literal["tensors", "sketch", "summary", "checksum", "structure"]
"""What was kept of each tensor: its values, a `Summary` of them with a sketch or without, a checksum of its bytes, or
nothing but dtype and shape. The more the earlier."""


def listed(steps: Collection[int]) -> str:
    """Return the first of some steps in words."""
    return ", ".join(map(str, [*list(steps)[:5], *(["..."] if len(steps) > 5 else [])])) or "none"


def spanned(steps: Sequence[int]) -> str:
    """Return the first of some steps in words, or where they follow one another the first and the last."""
    follow = len(steps) > 1 and list(steps) == list(range(steps[0], steps[-1] + 1))
    return f"{steps[0]} to {steps[-1]}" if follow else listed(steps)


def without_step(run: Run, step: int) -> InputError:
    """Return the error for a step that a run does not hold."""
    return InputError(f"{run.where} has no step {step}; it has {listed(run.steps)}.\nHint: give one of these.")


class Run(Protocol):
    """A recorded run of a model: plain data, which no framework is needed for."""

    @property
    def where(self) -> str:
        """Return the directory or file, as messages name it."""

    @property
    def about(self) -> Description:
        """Return what is known of the model before it ran."""

    @property
    def steps(self) -> Sequence[int]:
        """Return the numbers of the steps that were recorded and finished, in order."""

    @property
    def values(self) -> Kept:
        """Return what was kept of tensors."""

    def trace(self, step: int) -> Trace:
        """Return what one step did; its arrays are read when they are asked for.

        Raises `InputError` where the step is not there, or damaged. An array that is damaged raises it alone, at
        `Trace.value` and the like.
        """
