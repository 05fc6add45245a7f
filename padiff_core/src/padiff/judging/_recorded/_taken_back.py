"""Find by what a script divides its gradients before the optimizer's step, over all steps of two recorded runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from padiff.judging._recorded._given_gradients import given_gradients
from padiff.judging._sizes import held, magnitude
from padiff.numerics import ACCUMULATED, epsilon_of
from padiff.trace import Trace

Traces = tuple[Trace, Trace]
Factors = tuple[float | None, float | None]
_EPS = epsilon_of("float32")


@attrs.define(eq=False)
class TakenBack:
    """What each side divided its gradients by, in each step; an optimizer may step once in several recorded steps."""

    steps: Sequence[int]
    traces_of: Callable[[int], Traces]
    _known: dict[int, Factors] = attrs.field(factory=dict)

    def by(self, step: int, traces: Traces) -> Factors:
        """Return by what both sides divided every gradient that the optimizer stepped with behind a step.

        None where that is not one number, or not known.
        """
        if step not in self._known:
            self._known[step] = self._between_steps(step, traces)
        return self._known[step]

    def before(self, step: int) -> Traces | None:
        """Return what both sides did in the step before one, where both runs hold it."""
        return self.traces_of(step - 1) if step - 1 in self.steps else None

    def is_shown(self, side: int, times: float) -> bool | None:
        """Return whether in some step that side divides by so many times as much, and neither clips, as far as is seen.

        The other hands on what arrives there, or both divide by powers of two. None where there is no such step.
        """
        found = [(one[side], one[1 - side]) for one in (self.by(step, self.traces_of(step)) for step in self.steps)]
        shown = [
            own and own / other
            for own, other in found
            if other and (other == 1 or (_is_power(own) and _is_power(other)))
        ]
        close = any(own is not None and abs(own / times - 1) <= ACCUMULATED(_EPS) for own in shown)
        return close if shown else None

    def _between_steps(self, step: int, traces: Traces) -> Factors:
        """Return it of all that arrived since the optimizers' step before.

        Of this step's, where both scripts clear that: where gradients overflow, a step is skipped.
        """
        known = set(self.steps)
        earlier: list[Traces] = []
        number = step - 1
        while number in known and not _have_stepped(before := self.traces_of(number)):
            earlier.insert(0, before)
            number -= 1
        while not _have_stepped(traces):
            step += 1
            if step not in known:
                return None, None
            earlier.append(traces)
            traces = self.traces_of(step)
        ours, theirs = _factor(traces[0], [one for one, _ in earlier]), _factor(traces[1], [one for _, one in earlier])
        if earlier and None in (ours, theirs):
            alone = _factor(traces[0], ()), _factor(traces[1], ())
            return (ours, theirs) if None in alone else alone
        return ours, theirs


def _have_stepped(traces: Traces) -> bool:
    return any(one.handed for one in traces)


def _factor(trace: Trace, earlier: Sequence[Trace]) -> float | None:
    """Return by what every gradient was divided between its arrival and the step; None where that is not one number."""
    known = given_gradients(trace, earlier)
    rest = [held(trace, trace.handed[path]) for path in trace.handed.keys() - known.keys()]
    if not known or any(magnitude(one) for one in rest):
        return None  # what arrived is not known
    shares = [one.times for one in known.values()]
    if not min(shares) > 0 or all(one.cut for one in known.values()):  # one may seem to be by chance
        return None
    if max(shares) / min(shares) - 1 > ACCUMULATED(_EPS):
        return None
    return plain_factor(1 / max(shares))


def _is_power(times: float | None) -> bool:
    return times is not None and math.log2(times).is_integer()


def plain_factor(times: float, close: float = ACCUMULATED(_EPS)) -> float:
    """Return a factor, or the power of two that it is but for rounding: which rounds no gradient."""
    whole = 2.0 ** round(math.log2(times))
    return whole if abs(times / whole - 1) <= close else times
