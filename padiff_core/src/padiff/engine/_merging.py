"""Compare a candidate with the weights that it holds, where some of these are merged on purpose.

Nothing can be copied to such weights, and no gradient of theirs has a counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from padiff.engine._matching import Matching
from padiff.forcing import is_recorded
from padiff.parameters import Correspondence
from padiff.refinement import Evidence, with_merged

if TYPE_CHECKING:
    from padiff.engine._run import Run

_WHY = "gradients of weights that were merged have no counterpart"


def keep_as_given(run: Run, matching: Matching, evidence: Evidence) -> None:
    """Leave a candidate what it holds, where that is of another size and it gives what the reference gives."""
    untried = run.options.transfer and run.as_given is None and _may_be_merged(run)
    if untried and not matching.is_of_one_size and evidence.gives_alike():
        _leave(run, as_given=True)
        evidence.transfer = False


def merged(run: Run, known: Correspondence, evidence: Evidence) -> Correspondence | None:
    """Return the correspondence with the weights that are merged; None where the models have to run otherwise first.

    That is without the backward pass where some are; with the reference's weights where none is in a candidate that
    was left what it holds.
    """
    if run.options.transfer or not _may_be_merged(run):
        return known
    known = with_merged(known, evidence, run.resolved.ignored)
    if run.as_given and not any(known.merged):
        _leave(run, as_given=False)
    elif any(known.together) and run.options.backward:
        run.forward_only(_WHY)
    else:
        return known
    return None


def _may_be_merged(run: Run) -> bool:
    """Return whether what has no equal may be merged: in a first step, where no gradients of it are asked for."""
    recorded = is_recorded(run.reference)  # no call of it runs on other inputs
    return not (run.begun or recorded) and run.options.phase != "backward" and not run.options.optimizers


def _leave(run: Run, *, as_given: bool) -> None:
    """Leave the candidate what it holds, or do so no more."""
    run.as_given, run.correspondence = as_given, None
    run.options = run.outcome.options = attrs.evolve(run.options, transfer=not as_given)
