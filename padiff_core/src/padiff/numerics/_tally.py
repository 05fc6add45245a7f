"""Add up how far two arrays are apart, in float64, whatever values they hold."""

from __future__ import annotations

import math

import attrs
import numpy as np

from padiff.numerics._careful import careful
from padiff.numerics._dtypes import Array
from padiff.numerics._squares import Squares


@attrs.frozen
class Tally:
    """Say what a careful walk found: the largest error, relative L2, the reference's norm.

    ``mismatched``: a NaN or infinity has not its equal on the other side; then both errors are infinite.
    """

    max_abs: float
    rel_l2: float
    norm: float
    mismatched: bool


@attrs.define
class _Pass:
    """Add up one walk: values are multiplied by ``shrink``, and what is squared by ``reference`` or ``error`` too."""

    shrink: float = 1.0
    reference: float = 1.0
    error: float = 1.0
    error_squares: Squares = attrs.field(factory=lambda: Squares(np.dtype(np.float64)))
    reference_squares: Squares = attrs.field(factory=lambda: Squares(np.dtype(np.float64)))
    reference_peak: float = 0.0
    error_peak: float = 0.0
    mismatched: bool = False

    def over(self, ref: Array, cand: Array) -> _Pass:
        """Walk through both arrays."""
        with np.errstate(all="ignore"):
            for chunk in careful(ref, cand, self.shrink):
                self.mismatched |= chunk.mismatched.size > 0
                self.error_peak = max(self.error_peak, float(np.max(chunk.error)))
                self.reference_peak = max(self.reference_peak, float(np.max(chunk.reference_abs)))
                self.error_squares.add(chunk.error * self.error)
                # Part by part: the modulus of a complex number at float64's end is rounded to its smallest numbers.
                self.reference_squares.add((chunk.reference * self.reference).view(np.float64))
        return self


def tallied(ref: Array, cand: Array) -> Tally:
    """Return how far two arrays of one shape are apart.

    Where a plain sum of squares would overflow or vanish, a second walk scales by powers of two, as LAPACK's
    ``dlassq`` does.
    """
    found = _Pass().over(ref, cand)
    if not math.isfinite(found.reference_peak + found.error_peak):
        # A modulus or a difference passed 1.8e308 although every value is finite: quarter all values first.
        found = _Pass(shrink=0.25).over(ref, cand)
    factors = _factor(found.reference_peak), _factor(found.error_peak)
    if factors != (1.0, 1.0):
        found = _Pass(found.shrink, *factors).over(ref, cand)
    error, norm = (math.sqrt(squares.total()) for squares in (found.error_squares, found.reference_squares))
    rel_l2 = error / norm if norm else (math.inf if error else 0.0)
    if 0.0 < rel_l2 < math.inf:
        rel_l2 = rel_l2 * found.reference / found.error
    return Tally(
        max_abs=math.inf if found.mismatched else found.error_peak / found.shrink,
        rel_l2=math.inf if found.mismatched else rel_l2,
        norm=norm / found.reference / found.shrink,
        mismatched=found.mismatched,
    )


def _factor(peak: float) -> float:
    """Return a power of two that brings a peak near 1 where its squares might leave float64's range."""
    if peak == 0.0 or 1e-140 <= peak <= 1e140 or not math.isfinite(peak):
        return 1.0
    return 2.0 ** -min(1000, max(-1000, math.frexp(peak)[1]))
