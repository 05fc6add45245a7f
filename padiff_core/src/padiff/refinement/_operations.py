"""Match the operations in the code of matched calls, once the modules are matched beyond doubt."""

from __future__ import annotations

import attrs

from padiff.alignment import with_operations
from padiff.parameters import Correspondence
from padiff.refinement._evidence import Evidence
from padiff.refinement._mismatches import without_mismatches


def with_operations_matched(correspondence: Correspondence, evidence: Evidence) -> Correspondence:
    """Match operations by what they take and give, and drop the matches that forcing does not bear out.

    Where axes are read in another order, operations stay unmatched: the axes that they name differ.
    """
    if correspondence.axes:
        return correspondence
    free = evidence.free(correspondence.axes)
    calls = with_operations(correspondence.alignment, evidence.trace, free)
    return without_mismatches(attrs.evolve(correspondence, calls=calls), evidence)
