"""Hold what the step of both sides made of one parameter."""

from __future__ import annotations

import math

import attrs
import numpy as np

from padiff.judging._optimizer_step import rate_between
from padiff.numerics import EXACT, FLOORS, SAME, VANISHES, Array
from padiff.report import SIDES, Cause


@attrs.frozen(eq=False)
class Step:
    """What the step of both sides did to one parameter, in one layout."""

    before: tuple[Array, Array]
    after: tuple[Array, Array]
    gradients: tuple[Array, Array] | None
    scale: float
    """The largest root mean square of a gradient of its module's parameters."""
    eps: float
    rate: float = 1.0
    """The candidate's learning rate by the reference's, as their optimizers tell them."""

    @property
    def shows_rate(self) -> bool:
        """Return whether one step is about so many times as long as the other as the rate is: noise turns it rather."""
        lengths = [norm(step) for step in (self.ours, self.theirs)]
        return all(lengths) and FLOORS * abs(lengths[1] / lengths[0] - self.rate) < abs(self.rate - 1)

    @property
    def by_rounding(self) -> bool:
        """Return whether the gradient is known to be rounding alone: a step by it may be none."""
        sent = None if self.gradients is None else self.gradients[0]
        return sent is not None and norm(exact(sent)) <= SAME(self.eps) * self.scale * math.sqrt(sent.size)

    def reaches(self, longest: float) -> bool:
        """Return whether both steps are further apart than steps that are as long as others of the module may be."""
        apart, largest = (float(np.max(np.abs(one), initial=0.0)) for one in (self.theirs - self.ours, self.before[0]))
        return apart > max(2 * FLOORS * longest, EXACT(self.eps) * largest)

    @property
    def ours(self) -> Array:
        """Return the reference's step."""
        return exact(self.after[0]) - exact(self.before[0])

    @property
    def theirs(self) -> Array:
        """Return the candidate's step."""
        return exact(self.after[1]) - exact(self.before[1])

    @property
    def moved(self) -> float:
        """Return how far the reference's step went, relative to the values."""
        return norm(self.ours) / (norm(exact(self.before[0])) or 1.0)

    @property
    def difference(self) -> float:
        """Return how far apart both steps are, relative to the values."""
        return norm(self.theirs - self.ours) / (norm(exact(self.before[0])) or 1.0)

    def is_another(self, noise: float, *, contrasts: bool) -> bool:
        """Return whether it is further from the reference's than gradients with a ``noise`` move one as a rule.

        An optimizer that divides a gradient by its size turns the steps of elements that are smaller than the noise. Of
        two whose settings are ``contrasts`` less tells: what these make of a step is seen, or hidden by that.
        """
        apart, length = norm(self.theirs - self.ours), norm(self.ours)
        allowed = noise if contrasts else math.sqrt(noise)
        return apart > max(FLOORS * allowed * length, EXACT(self.eps) * norm(exact(self.before[0])))

    @property
    def cause(self) -> Cause | None:
        """Return that one side did not step, or that one step is a multiple of the other, where it is so."""
        lengths = [norm(step) for step in (self.ours, self.theirs)]
        start = exact(self.before[0])
        rounded = self.eps * norm(start)  # as an average of equals moves
        if VANISHES * min(lengths) < max(lengths) and min(lengths) <= rounded and not self.by_rounding:
            return Cause("not_stepped", {"side": SIDES[lengths[1] < lengths[0]]}, verified=True)
        if not all(lengths):
            return None
        times = rate_between((start + self.ours, start + self.theirs), self.before[0], told=True)
        if times is None and self.shows_rate:
            times = self.rate
        if times is None:
            return None
        few = float(f"{times:.4g}")
        return Cause("step_scaled", {"times": float(f"{times:.7g}") if few == 1 else few}, verified=True)


def exact(values: Array) -> Array:
    """Return values in float64."""
    return values.astype(np.float64)


def norm(values: Array) -> float:
    """Return the L2 norm of values."""
    return float(np.linalg.norm(values))
