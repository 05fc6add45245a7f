"""Keep what a side answered when calls were replayed, and give the answers again without the model."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from padiff.forcing import Replayed, ReplayRequest, Side
from padiff.trace import Key

Question = tuple[Key, str | None, int, bool, bool, bool, tuple[Key, ...], tuple[Key, ...]]


@attrs.frozen
class Refused:
    """What a replay raised."""

    error: str
    """The bare name of its class."""
    text: str


@attrs.define(eq=False)
class Answers:
    """What a side answered: to each question, in the order in which it was asked."""

    framework: str
    values: dict[str, Any] = attrs.field(factory=dict)
    """Path -> value of a parameter or buffer."""
    replays: dict[Question, list[Replayed | Refused]] = attrs.field(factory=dict)


class KeptSide:
    """A side whose answers are kept as plain data."""

    def __init__(self, side: Side) -> None:
        self.about = side.about
        self.answers = Answers(side.about.framework)
        self._side = side

    def replay(self, request: ReplayRequest) -> Replayed:
        """Run one call by itself, and keep what it did."""
        kept = self.answers.replays.setdefault(_question(request), [])
        try:
            found = self._side.replay(request)
        except Exception as error:  # whatever a framework raises: its reader gets class and message
            kept.append(Refused(type(error).__name__, str(error)))
            raise
        kept.append(found)
        return found

    def value(self, path: str) -> Any:
        """Return the value of a parameter or buffer, and keep it."""
        return self.answers.values.setdefault(path, np.array(self._side.value(path)))


@attrs.frozen
class _About:
    framework: str


class OfflineSide:
    """A side that gives the answers of another one again."""

    def __init__(self, answers: Answers) -> None:
        self.about = _About(answers.framework)
        self._values = answers.values
        self._left = {question: list(kept) for question, kept in answers.replays.items()}

    def replay(self, request: ReplayRequest) -> Replayed:
        """Return what the call did when it was replayed; raises ``KeyError`` where it never was."""
        kept = self._left[_question(request)]
        found = kept.pop(0) if len(kept) > 1 else kept[0]
        if isinstance(found, Refused):
            raise type(found.error, (RuntimeError,), {})(found.text)
        return found

    def value(self, path: str) -> Any:
        """Return the value that a parameter or buffer had; raises ``KeyError`` where nobody asked for it."""
        return self._values[path]


def _question(request: ReplayRequest) -> Question:
    """Return what tells one replay from another."""
    return (
        request.call.key,
        request.dtype,
        request.seed,
        request.backward,
        request.evaluating,
        request.truth is None,
        tuple(sorted(request.idle)),
        tuple(sorted(pair.key for pair in request.pairs)),
    )
