"""Ask what the difference of a value is: all that settling it, and telling chance and rounding, starts from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Reader, Replayed
from padiff.numerics import Array, Difference, SmallPart, difference, epsilon, epsilon_of, is_coarse, relative
from padiff.report import Figures
from padiff.trace import contrasts

TOGETHER_AT_SIGHT = Difference(True, 0.0, 0.0, float("nan"), True, True, False, 0)
"""Stands for what a forced run showed, where none was made."""
NARROWED: Sequence[Mapping[str, Any]] = (
    {"narrowing": True, "uncast": epsilon_of("float32")},
    {"narrowing": True},
)
"""How a call runs in float64 that calls a function without a kernel there: this one computes in float32.

Casts to float32 in the call's code are left out where that is offered: in a model of float32 they do nothing.
"""


@attrs.frozen(eq=False)
class Question:
    """One value of a call, of which it is asked what its difference is."""

    pair: Pair
    read: Reader
    """What takes it from what the call did alone."""
    native: Difference
    """The local difference seen in the forced run."""
    truth: Array | None = None
    """The reference's recorded value."""
    scale: float = 0.0
    """As in `is_suspect`."""
    backward: bool = True
    """Whether it arises in the backward pass."""
    what: Hashable = None
    """Its name: of another call with the same settings and shapes the same value rounds alike."""
    returned: bool = False
    """Whether the model returns it: nothing shows then that a mask drowns what it holds."""
    eps: float = attrs.field()
    """Its type's machine epsilon."""

    @eps.default
    def _of_truth(self) -> float:
        return epsilon(np.dtype(np.float32) if self.truth is None else self.truth.dtype)

    def of(self, part: SmallPart) -> Question:
        """Return the same question of a part, by its size in the recorded value; of chance all of the value tells."""
        shape = None if self.truth is None else self.truth.shape

        def read(run: Replayed, ours: bool) -> Array | None:
            value = self.read(run, ours)
            return value if value is None or value.shape != shape else part.of(value)

        truth = None if self.truth is None else part.of(self.truth)
        what = None if self.what is None else (self.what, part)
        apart = part.difference
        return attrs.evolve(self, read=read, native=apart, truth=truth, scale=apart.scale, what=what)

    @property
    def figures(self) -> Figures:
        """Return the local difference as figures."""
        return Figures(self.error, self.native.max_abs, not_finite=self.native.not_finite)

    @property
    def error(self) -> float:
        """Return the relative error of the local difference."""
        return relative(self.native, self.scale)

    @property
    def alike(self) -> bool:
        """Return whether both sides' settings are the same."""
        return not contrasts(self.pair.reference, self.pair.candidate)

    @property
    def widths(self) -> tuple[str | None, ...]:
        """Return the types in which the value is settled: the next wider one where there is none."""
        return (None,) if self.eps == 0 else ("float64", "float32") if is_coarse(self.eps) else ("float64",)

    def error_between(self, ours: Array, theirs: Array) -> float:
        """Return the relative error between two values of it."""
        return relative(difference(ours, theirs), self.scale)

    def in_float64(self, ours: Array, theirs: Array) -> Figures:
        """Return the figures, with how far both sides differ in float64, and what the reference rounds by itself."""
        truth = self.truth
        floor = None if truth is None or truth.shape != ours.shape else self.error_between(ours, truth)
        return attrs.evolve(self.figures, floor=floor, rel_l2_float64=self.error_between(ours, theirs))


def narrower_given(pair: Pair) -> float:
    """Return the machine epsilon of what one side's call is given, where the other's is given a finer type; else 0.

    Of several types that a call is given the finest counts.
    """
    given = [[epsilon_of(leaf.dtype) for leaf in call.inputs] for call in (pair.reference, pair.candidate)]
    finest = sorted(min(filter(None, some), default=0.0) for some in given)
    return finest[1] if 0.0 < finest[0] < finest[1] else 0.0
