"""Add up how far apart the steps of two optimizers are, in one pass over what they started from and were given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.numerics import ACCUMULATED, ACCUMULATION, EXACT, FLOORS, SAME, Array

Both = tuple[Array, Array]

_CHUNK = 1 << 16
"""Elements of one turn: what is computed of them stays in the cache, and numpy's calls cost little beside it."""
_FEW = 4
"""What part of all elements may be left out by subtracting them: of more nothing but rounding may be left."""
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
    count: int = 0
    """How many elements there are."""
    peaks: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
    """Another pass: the reference's longest step anywhere, and the largest of its values before."""

    def exceeds(self, eps: float, least: float, longest: float = 0.0, *, times: float = ACCUMULATION) -> bool:
        """Return whether the steps are further apart than their gradients explain, a share of ``least`` at least.

        Gradients explain ``times`` as much as they are apart themselves.
        Where the gradients are rounding, the ``longest`` step of another parameter of the module explains one too.
        """
        noise = math.sqrt(self.noise / self.gradient) if self.gradient else 0.0
        reach = max(least, times * noise) * math.sqrt(self.ours)
        if math.sqrt(self.apart) > max(reach, EXACT(eps) * math.sqrt(self.before)):
            return True
        means = math.sqrt(self.ours / max(self.count, 1)), math.sqrt(self.before / max(self.count, 1))
        if not self.unsure_peak > _reached(means, eps):
            return False
        step, value = self.peaks()
        return self.unsure_peak > _reached((max(step, longest), value), eps)


def is_left_by_several(sums: StepSums, longest: float, eps: float) -> bool:
    """Return whether steps are apart as rounding leaves several that take each other back, each up to the longest."""
    return math.sqrt(sums.apart) <= ACCUMULATED(eps) * longest * math.sqrt(sums.count)


def _reached(peaks: tuple[float, float], eps: float) -> float:
    """Return how far apart two steps may be where the gradients are rounding, by the peaks of step and values."""
    return max(2 * FLOORS * peaks[0], EXACT(eps) * peaks[1])


def step_sums(before: Both, after: Both, gradients: Both, scale: float, eps: float, *, apart: float) -> StepSums:
    """Return the sums of two steps; ``scale`` is the largest root mean square of a gradient of the same module.

    Both gradients as a whole are so far ``apart``. If that is more than rounding, zeros tell nothing, and elements that
    happen to agree better are no surer than others: the gradients of steps before need not.

    An optimizer that divides a gradient by its size makes a whole step of one that is rounding alone, in this step
    or in one before: small beside others of its module (the bias of keys), or not the same on both sides. Of these
    elements only the size of the step is held to the reference's.
    """
    arrays = [*before, *after, *gradients]
    least_type = np.float32 if not scale or _PLAIN[0] < scale < _PLAIN[1] else np.float64
    work = np.result_type(least_type, *(one.dtype for one in arrays if one.dtype.itemsize > 4))
    found = StepSums(count=before[0].size, peaks=lambda: _peaks(before[0], after[0], work))
    clean = apart <= SAME(eps)
    least = FLOORS * apart if not clean and FLOORS * apart < 1 else SAME(eps)
    zeros_are_sure = clean and float(np.linalg.norm(gradients[0])) > least * scale * math.sqrt(gradients[0].size)
    zeros_are_sure = zeros_are_sure and not _by_chance(gradients, least * scale)
    for start, other_start, end, other_end, sent, other_sent in _chunks(arrays, work):
        size = np.abs(sent)
        noise = other_sent - sent
        distance = np.abs(noise)
        unsure = size <= least * scale
        if zeros_are_sure:
            unsure &= np.maximum(size, distance) != 0
        size *= least
        unsure |= ~(distance <= size)
        ours = end - start
        further = other_end - other_start
        further -= ours
        places = np.flatnonzero(unsure)
        found.before += _squares(start, places)
        found.gradient += _squares(sent, places)
        if places.size:
            found.unsure_peak = max(found.unsure_peak, _peak(further[places]))
            further[places] = ours[places] = noise[places] = 0
        found.apart += float(further.dot(further))
        found.ours += float(ours.dot(ours))
        found.noise += float(noise.dot(noise))
    return found


def _by_chance(gradients: Both, least: float) -> bool:
    """Return whether fewer elements are zero than are so small that they are rounding: so rounding comes to zero, too.

    Of rows that no token looks up, and of units that are dead, all are zero.
    """
    zeros = int(np.count_nonzero((gradients[0] == 0) & (gradients[1] == 0)))
    return 0 < zeros < int(np.count_nonzero(np.abs(gradients[0]) <= least)) - zeros


def _chunks(arrays: Sequence[Array], work: np.dtype[Any]) -> Iterable[Any]:
    return np.nditer(
        arrays,
        ["external_loop", "buffered", "zerosize_ok"],
        [["readonly"]] * len(arrays),
        [work] * len(arrays),
        casting="unsafe",
        buffersize=_CHUNK,
    )


def _peaks(before: Array, after: Array, work: np.dtype[Any]) -> tuple[float, float]:
    """Return the longest step of any element, and the largest value before."""
    found = [(_peak(end - start), _peak(start)) for start, end in _chunks([before, after], work)]
    return max((step for step, _ in found), default=0.0), max((value for _, value in found), default=0.0)


def _peak(values: Array) -> float:
    return max(float(np.maximum.reduce(values, initial=0.0)), -float(np.minimum.reduce(values, initial=0.0)))


def _squares(values: Array, left_out: NDArray[np.intp]) -> float:
    """Return the sum of squares without those at some places; of a few it is quicker to subtract them."""
    if _FEW * left_out.size > values.size:
        values, left_out = np.delete(values, left_out), left_out[:0]
    rest = values[left_out]
    return float(values.dot(values)) - float(rest.dot(rest))
