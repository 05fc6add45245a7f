"""Compare two models once more with other weights: those that they have may hide a fault, or lie at a kink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from padiff.engine._zeros import replaced, zero_weights
from padiff.errors import PadiffError
from padiff.parameters import Correspondence, transfer
from padiff.report import Cause, Note, Phase

if TYPE_CHECKING:
    from padiff.engine._run import Run


def laid_open(run: Run) -> Run:
    """Return the run; where it passes, and weights may hide a fault as they are, one with others there."""
    known = run.correspondence
    if known is None or not run.hidden or run.outcome.differs or run.rule is not None:
        return run
    said = {"paths": run.hidden, "ones": not run.options.backward, "unreached": run.unreached}
    try:
        other = _with_others(run.hidden, known, run)
    except PadiffError as error:
        run.outcome.notes.append(Note("zeros_kept", {**said, "error": str(error).partition("\n")[0]}))
        return run
    shown = other if other.outcome.differs else run
    still = run.unreached and not other.outcome.differs and sorted({*run.hidden}.intersection(other.hidden))
    if still:
        run.outcome.notes.append(Note("unreached", {"paths": still}))
    else:
        shown.outcome.notes.append(Note("zeros_replaced", {**said, "differs": other.outcome.differs}))
    return shown


def explain_kinks(run: Run) -> None:
    """Name the cause where gradients alone differ, and only while weights are zeros.

    What these make lies at a kink then, of a LeakyReLU for one, whose slope at zero is a convention.
    """
    known, sources = run.correspondence, [one for one in run.outcome.findings if one.source]
    unexplained = all(one.phase is Phase.BACKWARD and one.cause is None for one in sources)
    paths = zero_weights(known, run.reference) if known is not None and sources and unexplained else []
    if known is None or not paths or run.rule is not None:
        return
    try:
        other = _with_others(paths, known, run)
    except PadiffError:
        return
    if not other.outcome.differs:
        cause = Cause("kink", {"paths": paths}, verified=True)
        found = run.outcome.findings
        run.outcome.findings = [attrs.evolve(one, cause=cause) if one in sources else one for one in found]


def _with_others(paths: list[str], known: Correspondence, run: Run) -> Run:
    """Return a run of the first step with other values of the reference's parameters, on both sides."""
    sides, other = (run.reference, run.candidate), run.again(run.tasks)
    try:
        with replaced(paths, known, sides):
            other.step(0)
    finally:
        if run.options.transfer:
            transfer(known.matches, *sides)
    return other
