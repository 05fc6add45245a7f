"""Match the operations in the code of matched calls, once the modules are matched beyond doubt."""

from __future__ import annotations

import attrs

from padiff.alignment import Pair, with_operations
from padiff.parameters import Correspondence
from padiff.refinement._evidence import Evidence
from padiff.refinement._loose_gradients import backward_faults
from padiff.refinement._mismatches import without_mismatches

_WAYS = ("input", "output")


def with_operations_matched(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Match operations by what they take and give, and drop the matches that forcing does not bear out.

    What they take and give is told by the forced run: in the free run all is otherwise behind a first fault.
    Where axes are read in another order, operations stay unmatched: the axes that they name differ.
    """
    if correspondence.axes:
        return correspondence
    free = evidence.free(correspondence.axes)
    shown = evidence.judged(correspondence).forced.samples
    forced = {
        leaf.token: shown[call.key, what, index]
        for call in free.calls
        for what in _WAYS
        for index, leaf in enumerate(call.leaves(what))
        if (call.key, what, index) in shown
    }
    fed = attrs.evolve(free, samples={**free.samples, **forced})
    calls = with_operations(correspondence.alignment, evidence.trace, fed)
    # Where the modules' gradients are right, what gets none on one side alone is another operation: the same again for
    # what needs none (which neighbours are near), beside the one that lets them through.
    cut = [pair for pair in calls.pairs if pair.candidate.module.operation and _is_cut(pair)]
    if cut and not backward_faults(evidence.judged(correspondence)):
        calls = calls.without(cut)
    return without_mismatches(attrs.evolve(correspondence, calls=calls), evidence)


def _is_cut(pair: Pair) -> bool:
    """Return whether what two calls give can get a gradient on one side alone."""
    return any(ours.differentiable != theirs.differentiable for ours, theirs in pair.made)
