"""Know of a matched call how far apart what it was given is, and how far apart two models drifted."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Drift:
    """How far apart what two runs hold is before a step, relative L2, where nothing was found in the steps before."""

    whole: float = 0.0
    """All parameters together."""
    modules: Mapping[str, float] = attrs.field(factory=dict)
    """Path of a module of the candidate -> its own parameters."""
    statistics: Mapping[str, float] = attrs.field(factory=dict)
    """The same of running variances, where the frameworks track them by two conventions."""


@attrs.define(eq=False)
class Level:
    """What is known of one matched call so far: how far apart what its code was given is."""

    error: float = 0.0
    differs: bool = False
    """Whether something that it was given counts as differing."""
    least: bool = False
    """Whether it is at least so far apart, and may be far more: see `Size`."""
    drift: float = 0.0
    """How far apart the models were when it was computed, and statistics that it was computed with, which two
    frameworks track by two conventions."""
    random: bool = False
    """Whether something that it was given follows from random numbers."""
    eps: float = 0.0
    """Machine epsilon of the coarsest type of what it was given: automatic casts go back and forth, and what they cast
    is as coarse as that. No further: what is rounded so is no excuse for what stands behind it."""
    rounded: float = 0.0
    """How far apart is what it was given by rounding alone, however far: gradients that rounding makes much of, weights
    of steps from such."""

    def add(self, other: Level) -> None:
        """Take what is known of another one too."""
        self.error = max(self.error, other.error)
        self.drift = max(self.drift, other.drift)
        self.eps = max(self.eps, other.eps)
        self.differs |= other.differs
        self.least |= other.least
        self.random |= other.random
        self.rounded = max(self.rounded, other.rounded)

    def vaguely(self, known: Level, least: bool) -> None:
        """Take what a value was made of too, where nothing but the least that it is apart is known."""
        if least:
            self.add(known)
            self.least = True
