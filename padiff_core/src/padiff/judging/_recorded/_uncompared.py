"""Tell of what the models give that its values say nothing."""

from __future__ import annotations

from collections.abc import Iterator

from padiff.alignment import Alignment
from padiff.judging._findings import finding_at
from padiff.judging._notes import same_bytes
from padiff.judging._recorded._leaps import Leaps
from padiff.report import Evidence, Finding, Phase, Verdict, What


def uncompared(leaps: Leaps, alignment: Alignment, step: int) -> Iterator[Finding]:
    """Yield the outputs of the model where their values say nothing: not kept, or random. That is never a pass."""
    for root, (i, j) in ((top, both) for top in alignment.tops for both in top.outputs):
        leaf = root.reference.outputs[i]
        kept = leaf.token in leaps.compared
        why = "its values were not kept in both runs; record them in both, by values= and modules="
        if kept and leaps.is_random(leaf.token):
            why = "each run drew random numbers of its own before; record in evaluation mode, or without dropout"
        elif kept:
            continue
        elif same_bytes(leaps.meter.traces, leaf, root.candidate.outputs[j]) is False:
            why = "its bytes are other ones, and checksums do not tell how far apart the values are"
        what = What("output", leaf.path if len(root.outputs) > 1 else "", i)
        evidence = Evidence.of("not_compared", why=why)
        yield finding_at(root, Phase.FORWARD, what, evidence, verdict=Verdict.UNMATCHED, step=step)
