"""Say what a script makes its loss of."""

from __future__ import annotations

from collections.abc import Iterator

from padiff.alignment import Alignment, Pair
from padiff.judging._ends import without_counterpart
from padiff.judging._recorded._leaps import Leaps
from padiff.judging._shapes import described
from padiff.report import SIDES, Note
from padiff.trace import Leaf, Trace


def makes_the_loss(traces: tuple[Trace, Trace], side: int, leaf: Leaf) -> bool:
    """Return whether what a script makes of a tensor is judged, by its loss, or by gradients: a part may give more.

    To one of a whole model that is no part of the loss no gradient comes: of that `untrained` tells.
    """
    part = all(call.path for call in traces[side].tops)
    told = all(trace.loss is not None for trace in traces)
    return all(trace.gradients for trace in traces) and (part or told)


def untrained(traces: tuple[Trace, Trace], root: Pair) -> Iterator[Note]:
    """Yield the tensors that one model alone returns, to which no gradient comes, where all else is judged by these."""
    for side, leaves in enumerate(without_counterpart(root)):
        lone = [one for one in leaves if one.token not in traces[side].gradients and makes_the_loss(traces, side, one)]
        if lone:
            yield Note("untrained_output", {"side": SIDES[side], "tensors": described(lone)})


def handed_on(leaps: Leaps, alignment: Alignment) -> Iterator[float]:
    """Yield how far apart is what a script, or code without counterpart, is given by calls that have one, relative L2.

    Where one script calls a whole, and the other its parts, a loss is made of more than the calls that both make.
    """
    for pair in alignment.pairs:
        inside = (
            any(alignment.of_reference(call) for call in pair.reference.ancestors()),
            any(alignment.of_candidate(call) for call in pair.candidate.ancestors()),
        )
        sizes = (leaps.size(*leaves) for leaves in pair.made if not all(inside))
        yield from (size.error for size in sizes if size is not None)
