"""Add up how far apart the steps of two optimizers are, in one pass over what they started from and were given."""

from __future__ import annotations

import math

import attrs
import numpy as np

from padiff.numerics import ACCUMULATION, EXACT, FLOORS, SAME, Array

Both = tuple[Array, Array]

_CHUNK = 1 << 14
"""Elements of one turn: what is computed of them stays in the cache."""
_PLAIN = 2.0**-30, 2.0**30
"""Sizes of gradients whose squares float32 holds."""


@attrs.define
class StepSums:
    """What two steps of one parameter add up to: squares of elements whose gradients are sure, peaks of the others."""

    apart: float = 0.0
    """Squares of how far apart both steps are, as all sums where the gradients are sure."""
    ours: float = 0.0
    """Squares of the reference's step."""
    before: float = 0.0
    """Squares of the reference's values before it."""
    gradient: float = 0.0
    """Squares of its gradient."""
    noise: float = 0.0
    """Squares of how far apart both gradients are."""
    unsure_peak: float = 0.0
    """How far apart both steps are, at most, where the gradients are rounding."""
    step_peak: float = 0.0
    """The reference's longest step anywhere, and the largest of its values before."""
    before_peak: float = 0.0

    def exceeds(self, eps: float) -> bool:
        """Return whether the steps are further apart than their gradients explain."""
        noise = math.sqrt(self.noise / self.gradient) if self.gradient else 0.0
        reach = max(SAME(eps), ACCUMULATION * noise) * math.sqrt(self.ours)
        if math.sqrt(self.apart) > max(reach, EXACT(eps) * math.sqrt(self.before)):
            return True
        return self.unsure_peak > max(2 * FLOORS * self.step_peak, EXACT(eps) * self.before_peak)


def step_sums(before: Both, after: Both, gradients: Both, scale: float, eps: float, *, clean: bool) -> StepSums:
    """Return the sums of two steps; ``scale`` is the largest root mean square of a gradient of the same module.

    ``clean`` says that both gradients as a whole are the same but for rounding: else zeros tell nothing.

    An optimizer that divides a gradient by its size makes a whole step of one that is rounding alone, in this step
    or in one before: small beside others of its module (the bias of keys), or not the same on both sides. Of these
    elements only the size of the step is held to the reference's.
    """
    arrays = [*before, *after, *gradients]
    work = np.result_type(np.float32, *(one.dtype for one in arrays if one.dtype.itemsize > 4))
    least, found = SAME(eps), StepSums()
    # A power of two brings the gradients' squares into the type's range, and changes none of them otherwise.
    shrink = 1.0 if not scale or _PLAIN[0] < scale < _PLAIN[1] else 2.0 ** -math.frexp(scale)[1]
    zeros_are_sure = clean and float(np.linalg.norm(gradients[0])) > least * scale * math.sqrt(gradients[0].size)
    chunks = np.nditer(
        arrays,
        ["external_loop", "buffered", "zerosize_ok"],
        [["readonly"]] * len(arrays),
        [work] * len(arrays),
        casting="unsafe",
        buffersize=_CHUNK,
    )
    for start, other_start, end, other_end, sent, other_sent in chunks:
        if shrink != 1.0:
            sent, other_sent = sent * shrink, other_sent * shrink
        size = np.abs(sent)
        noise = other_sent - sent
        distance = np.abs(noise)
        sure = (distance <= least * size) & (size > least * scale * shrink)
        if zeros_are_sure:
            sure |= np.maximum(size, distance) == 0
        ours = end - start
        apart = other_end - other_start
        apart -= ours
        found.step_peak = max(found.step_peak, _peak(ours))
        found.before_peak = max(found.before_peak, _peak(start))
        kept = sure.astype(work)
        trusted = apart * kept
        apart -= trusted
        found.unsure_peak = max(found.unsure_peak, _peak(apart))
        found.apart += float(trusted.dot(trusted))
        found.ours += _squares(ours, kept)
        found.before += _squares(start, kept)
        found.gradient += _squares(sent, kept)
        found.noise += _squares(noise, kept)
    return found


def _peak(values: Array) -> float:
    return max(float(np.maximum.reduce(values, initial=0.0)), -float(np.minimum.reduce(values, initial=0.0)))


def _squares(values: Array, kept: Array) -> float:
    chosen = values * kept
    return float(chosen.dot(chosen))
