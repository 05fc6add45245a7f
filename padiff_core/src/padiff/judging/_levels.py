"""Know of a matched call how far apart what it was given is, and of a value whether a difference arises there."""

from __future__ import annotations

import attrs

from padiff.judging._suspicion import Suspicion


@attrs.frozen
class Told:
    """A value that differs, and whether the difference arises there."""

    suspicion: Suspicion
    source: bool
    vague: bool = False
    """Whether what its own call was given is not known, so that the call around it is named."""


@attrs.define(eq=False)
class Level:
    """What is known of one matched call so far: how far apart what its code was given is."""

    error: float = 0.0
    differs: bool = False
    """Whether something that it was given counts as differing."""
    drift: float = 0.0
    """How far apart are statistics that it was computed with, tracked by conventions that differ."""
    random: bool = False
    """Whether something that it was given follows from random numbers."""
    rounded: bool = False
    """Whether a gradient that came to it differs by rounding alone, however far, and so what follows from that."""

    def add(self, other: Level) -> None:
        """Take what is known of another one too."""
        self.error = max(self.error, other.error)
        self.drift = max(self.drift, other.drift)
        self.differs |= other.differs
        self.random |= other.random
        self.rounded |= other.rounded
