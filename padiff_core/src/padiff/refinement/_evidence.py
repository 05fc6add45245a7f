"""What runs tell of a correspondence: the free run under it, the forced run, calls by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.forcing import Bench, Side, force
from padiff.judging import Judge, Measures, Rule, asking
from padiff.parameters import Correspondence, UnitMatch, transfer
from padiff.recording import Task, Turns
from padiff.trace import Trace

__all__ = ["Evidence"]

Array = NDArray[Any]


@attrs.define(eq=False)
class Evidence:
    """The sides of one step, the reference's trace, and what the candidate's runs showed so far."""

    reference: Side
    candidate: Side
    task: Task
    """The candidate's."""
    trace: Trace
    """The reference's."""
    run: Callable[[Side], Trace]
    """Runs the candidate freely."""
    measures: Measures
    rule: Rule | None = None
    loss: bool = False
    """Whether the user gave a loss."""
    transfer: bool = True
    """Whether the candidate is given the reference's parameters."""
    _free: dict[tuple[Any, ...], Trace] = attrs.field(init=False, factory=dict)
    _permuted: tuple[Turns, Side] | None = attrs.field(init=False, default=None)
    _judges: dict[Correspondence, Judge] = attrs.field(init=False, factory=dict)

    def side(self, axes: Turns) -> Side:
        """Return the candidate, with its tensors read in an order of axes."""
        if not axes:
            return self.candidate
        if self._permuted is None or self._permuted[0] != axes:
            self._permuted = axes, self.candidate.permuted(axes)
        return self._permuted[1]

    def assign(self, matches: Iterable[UnitMatch]) -> None:
        """Give the candidate the reference's parameters, where that was asked for."""
        if self.transfer:
            transfer(matches, self.reference, self.candidate)

    def free(self, axes: Turns | None = None) -> Trace:
        """Return the candidate's free run: what a user sees. It is run where nothing is known of it yet."""
        axes = axes or {}
        key = tuple(sorted(axes.items()))
        if key not in self._free:
            self._free = {key: self.run(self.side(axes))}
        return self._free[key]

    def forget_runs(self) -> None:
        """Forget what the candidate did: it has other weights now."""
        self._free.clear()
        self._judges.clear()

    def bench(self, correspondence: Correspondence, own: Mapping[Any, Array] | None = None) -> Bench:
        """Return what replays calls under a correspondence."""
        side, task = self.side(correspondence.axes), self.task
        calls = correspondence.alignment
        return Bench(self.reference, side, self.trace, calls, own or {}, task.backward, task.seed)

    def judged(self, correspondence: Correspondence) -> Judge:
        """Return the judge of the candidate's forced run under a correspondence; it is run once."""
        known = self._judges.get(correspondence)
        if known is None:
            ask = asking(self.rule, self.measures)
            side, calls = self.side(correspondence.axes), correspondence.alignment
            forced = force(self.reference, side, self.task, calls, self.trace, correspondence.matches, ask)
            bench = self.bench(correspondence, forced.own)
            known = Judge(bench, self.trace, forced, loss=self.loss, measures=self.measures)
            self._judges[correspondence] = known
        return known

    def replaced(self, before: Correspondence, after: Correspondence) -> Correspondence:
        """Return a correspondence under which runs show what they showed under another: only notes differ."""
        if before in self._judges:
            self._judges[after] = self._judges[before]
        return after

    def keep(self, correspondence: Correspondence) -> Correspondence:
        """Forget the forced runs under all correspondences but one, and return that."""
        self._judges = {one: judge for one, judge in self._judges.items() if one is correspondence}
        return correspondence
