"""Tell of what the models give that its values say nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from padiff.alignment import Alignment
from padiff.judging._ends import unlike_shapes
from padiff.judging._findings import finding_at, pair_of
from padiff.judging._notes import same_bytes
from padiff.judging._recorded._leaps import Leaps
from padiff.report import Evidence, Finding, Phase, Verdict, What


def of_other_shapes(found: Sequence[Finding], alignment: Alignment, step: int) -> list[Finding]:
    """Return findings with the calls behind the first of which nothing fits that they give; no gradients tell of that.

    What such a call is given is why, if it has other sizes, unless a source in front of it is: no code inside of it.
    """
    found = list(found)
    for root in (top for top in alignment.tops if top is not alignment.pairs[0]):
        unfit = root.reference.outputs and root.candidate.outputs and not root.outputs
        pairs = [(one, pair_of(one, alignment)) for one in found if one.source]
        inside = [one for one, pair in pairs if pair is not None and pair.candidate.top is root.candidate]
        given = [*unlike_shapes(root, step, differs=True)] if unfit or inside else []
        if given:
            found = [attrs.evolve(one, source=False) if one in inside else one for one in found]
            found += [attrs.evolve(one, source=not any(known.source for known in found)) for one in given]
        if unfit:
            evidence = Evidence.of("not_compared", why="the other run's has another shape or type")
            found.append(
                finding_at(root, Phase.FORWARD, What("output"), evidence, verdict=Verdict.UNMATCHED, step=step)
            )
    return found


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
