"""Tell values that differ inside of two models, and change nothing of all that these give: then they are no fault.

Such is a shift in front of a norm, or a scale that one side puts in earlier. Where the gradient of such a value is zero
nothing is proven: behind a gate of zeros any fault is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from padiff.judging._findings import finding_of
from padiff.judging._insides import right_as_a_whole
from padiff.judging._suspicion import Suspicion, contrasted
from padiff.judging._wholes import Ends, Runs
from padiff.numerics import SAME, epsilon_of
from padiff.report import Note, Phase, Verdict

if TYPE_CHECKING:
    from padiff.judging._judge import Judge
    from padiff.trace import Trace


def harmless(judge: Judge, found: Sequence[Suspicion], runs: Runs) -> list[Suspicion]:
    """Return the differences inside that change nothing; none of them where one may be a fault.

    ``runs`` are the free ones. In float64 both models, from one input, have to give the same values, the same gradients
    to all inputs and parameters, and the same buffers, but for an epsilon of float32 of what differs inside.
    """
    differing = [one for one in found if one.verdict is Verdict.DIFFERS]
    ends = Ends(judge.alignment)
    gaps = ends.gaps(runs)  # at sight: what they are in float64 decides
    same = bool(gaps) and all(gap.rel_l2 <= SAME(gap.eps) for gap in gaps)
    if not (same and differing and all(_matters(one, judge.trace) for one in differing)):
        return []
    if any(map(judge.settler.chance.takes, judge.alignment.pairs)):
        return []  # one draw proves nothing
    least = min(one.ruling.figures.rel_l2 for one in differing)
    bound = epsilon_of("float32") * least  # what is damped on its way to the outputs is a fault all the same
    return differing if right_as_a_whole(judge.settler.bench, ends.root, buffers=True, bound=bound) else []


def _matters(suspicion: Suspicion, trace: Trace) -> bool:
    """Return whether a value is what the code in between makes, and every element of it has a gradient."""
    spot = suspicion.spot
    if suspicion.phase is not Phase.FORWARD or spot is None or contrasted(suspicion.pair):
        return False
    gradient = trace.gradient(spot.reference)
    return gradient is not None and bool(gradient.size and np.all(gradient))


def harmless_note(suspicion: Suspicion) -> Note:
    """Write which value differs, where, and that it changes nothing."""
    finding = finding_of(suspicion, source=False, step=0)
    data = {"value": str(finding.what), "rel_l2": suspicion.ruling.figures.rel_l2}
    return Note("harmless", data, finding.reference, finding.candidate)
