"""Hold what the steps of a comparison showed so far, whether models were run or two recorded runs were read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs

from padiff.alignment import Pair
from padiff.judging._parameters import Ignored
from padiff.report import ComparedCall, Coverage, Figures, Finding, Matching, Note, Verdict


@attrs.define(eq=False, kw_only=True)
class Gathered:
    """What is known so far."""

    findings: list[Finding] = attrs.field(factory=list)
    notes: list[Note] = attrs.field(factory=list)
    calls: list[ComparedCall] = attrs.field(factory=list)
    mapping: Matching = attrs.field(factory=Matching)
    output: Figures | None = None
    output_within: bool | None = None
    loss: tuple[float, float] | None = None
    coverage: Coverage | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Return how many calls got which verdict, in the verdicts' own order."""
        found = Counter(call.verdict for call in self.calls)
        return {verdict.value: found[verdict] for verdict in Verdict if found[verdict]}

    @property
    def differs(self) -> bool:
        """Return whether anything that counts was found."""
        return any(one.counts for one in self.findings)

    def add_calls(self, calls: Iterable[ComparedCall]) -> None:
        """Add the compared tree of one step behind those of the others."""
        start = len(self.calls)
        self.calls += [attrs.evolve(one, parent=None if one.parent is None else one.parent + start) for one in calls]


def is_pair_ignored(pair: Pair, ignored: Ignored) -> bool:
    """Return whether the user left a call out, on either side."""
    return pair.reference.path in ignored[0] or pair.candidate.path in ignored[1]
