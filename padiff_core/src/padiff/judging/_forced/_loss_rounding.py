"""Measure how far rounding alone moves a loss, and the gradient that it sends to what it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Check, is_recorded
from padiff.judging._ends import epsilon_of_outputs
from padiff.judging._forced._free_runs import Sides, Tasks, tried
from padiff.judging._suspicion import Ruling
from padiff.numerics import ACCUMULATED, FLOORS, GROSS, Array, difference, epsilon_of, root_mean_square
from padiff.report import Evidence, Figures, Note, Verdict
from padiff.trace import temporary_store

_DRAWS = range(1, 9)
"""Of one number: of four, all were so small once that a right loss was six times as far off."""


@attrs.define(eq=False)
class LossRounding:
    """How far apart two losses of equal outputs may be, and their gradients, by rounding alone: measured when asked.

    It is what a machine epsilon in each value that the reference's loss computes with makes of it, in float64 where
    that runs; where the reference was recorded, the candidate's. That tells of outputs, of what a loss holds (targets,
    weights), and of numbers that nearly cancel, as 1 and a cosine may.
    """

    sides: Sides
    tasks: Tasks
    root: Pair
    notes: list[Note] = attrs.field(factory=list)

    def explains(self, apart: float) -> bool:
        """Return whether losses in the models' own types may be so far apart, absolutely; take a note that they are."""
        most = FLOORS * self._moved[0]
        if apart <= most:
            self.notes.append(Note("loss_rounded", {"apart": apart, "most": most}))
        return apart <= most

    def gradient(self) -> float:
        """Return how far apart the gradients of an output may be there, relative L2."""
        return FLOORS * self._moved[1]

    def sent_otherwise(self) -> bool:
        """Return whether the gradients of the outputs tell, in float64, that losses are other functions.

        What they hold may be rounded there: by up to 0.67 times what a disturbance makes of the gradients of 108 right
        ports, and 1.3 times of their scale, where the loss, one number, is off by up to 2.3 times.
        """
        ours, theirs = (self._run(index, "float64") for index in (0, 1))
        if ours is None or theirs is None:
            return False
        _, gradient, scale = ours.apart(theirs, self.root.outputs)
        return gradient > self._moved[1] or scale > FLOORS * self._moved[2]

    @cached_property
    def _moved(self) -> tuple[float, float, float]:
        """Return how far a disturbance moves the loss and its gradient: the root mean square of some; see `_Ends`."""
        eps, index = epsilon_of_outputs(self.root), int(is_recorded(self.sides[0]))
        dtype: str | None = "float64"
        still = self._run(index, dtype)
        if still is None:
            still, dtype = self._run(index, None), None
        if still is None:
            return 0.0, 0.0, 0.0
        runs = filter(None, (self._run(index, dtype, (eps, draw)) for draw in _DRAWS))
        found = np.array([still.apart(one, [(i, i) for i, _ in enumerate(still.sent)]) for one in runs] or [(0, 0, 0)])
        number, gradient, scale = (root_mean_square(each[np.isfinite(each)]) for each in found.T)
        return number, gradient, scale

    def _run(self, index: int, dtype: str | None, noise: tuple[float, int] | None = None) -> _Ends | None:
        task = attrs.evolve(self.tasks[index], dtype=dtype, backward=True, loss_noise=noise)
        with temporary_store() as store:
            trace = tried(partial(self.sides[index].record, task, store))
            if trace is None or trace.loss is None:
                return None
            sent = (trace.gradient(leaf) for leaf in trace.root.outputs)
            return _Ends(trace.loss, [None if one is None else np.array(one) for one in sent])


@attrs.frozen
class _Ends:
    """The loss of a run, and the gradients that it sends to the outputs."""

    loss: float
    sent: list[Array | None]

    def apart(self, other: _Ends, matched: Iterable[tuple[int, int]]) -> tuple[float, float, float]:
        """Return how far apart the losses of two runs are, absolutely, and gradients of an output at most.

        These relative L2, and by how much one is larger than the other in all its elements: rounding goes either way.
        """
        both = ((self.sent[i], other.sent[j]) for i, j in matched)
        known = [(a, b) for a, b in both if a is not None and b is not None and a.shape == b.shape]
        gradient = max((difference(a, b).rel_l2 for a, b in known), default=0.0)
        scale = max((abs(float(np.vdot(a, b) / np.vdot(a, a)) - 1) for a, b in known if a.any()), default=0.0)
        return abs(self.loss - other.loss), gradient, scale


def ruling_on_sent(check: Check, rounding: LossRounding) -> Ruling:
    """Rule on a gradient that a loss sends to an output: it is precision where it is no more than rounding makes."""
    apart = check.difference
    narrow = check.close is None and apart.rel_l2 <= ACCUMULATED(epsilon_of(check.spot.candidate.dtype))
    if not narrow and apart.rel_l2 <= GROSS(epsilon_of(check.spot.reference.dtype, check.spot.candidate.dtype)):
        narrow = apart.rel_l2 <= rounding.gradient() and not rounding.sent_otherwise()
    told = Evidence("narrow_gradient" if narrow else "loss_gradient")
    return Ruling(Verdict.PRECISION if narrow else Verdict.DIFFERS, Figures.of(apart), (told,))
