"""Look at one step of a job beside the same step of the other side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from padiff.distributed._merged_step import MergedStep
from padiff.distributed._others import Other
from padiff.distributed._run import RankedRun
from padiff.report import SIDES, Finding, Phase, Place, Verdict, What
from padiff.trace import Call, Trace


@attrs.frozen(eq=False)
class Job:
    """One step of a job, and of what it is compared with."""

    run: RankedRun
    other: Any
    """The other run, of several ranks or of one."""
    number: int
    """The number of the step."""
    others: Other
    step: MergedStep

    @classmethod
    def of(cls, runs: Sequence[Any], traces: Sequence[Trace], index: int, number: int) -> Job:
        """Return a step of the run at an index (0 the reference's), given both runs and both traces of the step."""
        run: RankedRun = runs[index]
        assert run.counterpart is not None
        return cls(run, runs[1 - index], number, run.counterpart.beside(traces[1 - index]), run.merged(number))

    @property
    def side(self) -> str:
        """Return which of both sides the job is."""
        return SIDES[self.others.index]

    def mine(self, finding: Finding) -> Place:
        """Return the job's place of a finding."""
        found: Place = getattr(finding, self.side)
        return found

    def theirs(self, finding: Finding) -> Place:
        """Return the other side's place of a finding."""
        found: Place = getattr(finding, SIDES[1 - self.others.index])
        return found

    def call(self, finding: Finding) -> Call | None:
        """Return the call of the job that a finding is about, if it is."""
        key = self.mine(finding).path, self.mine(finding).call
        return next((call for call in self.step.trace.calls if call.key == key), None)

    def places(self, mine: Place, theirs: Place | None) -> dict[str, Any]:
        """Return ``reference`` and ``candidate`` of a finding; what the other side does not have has no path there."""
        theirs = attrs.evolve(mine, path=None) if theirs is None else theirs
        return dict(zip(SIDES, (theirs, mine) if self.others.index else (mine, theirs), strict=True))

    def finding(self, phase: Phase, what: What, at: tuple[Place, Place | None], **told: Any) -> Finding:
        """Return a source of the job, ``at`` its place and that of the other side, if that has one."""
        rest = {"source": True, "side": None, "step": self.number, **told}
        return Finding(verdict=Verdict.DIFFERS, phase=phase, **self.places(*at), what=what, **rest)
