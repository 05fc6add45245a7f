"""Compare two models once more with other weights, where those that they have may hide a fault."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from padiff.engine._zeros import replaced
from padiff.errors import PadiffError
from padiff.parameters import transfer
from padiff.report import Note

if TYPE_CHECKING:
    from padiff.engine._adapt import Prepared
    from padiff.engine._diff import Run


def laid_open(run: Run, prepared: Prepared, stack: ExitStack) -> Run:
    """Return the run; where it passes, and weights may hide a fault as they are, one with others there."""
    known, sides = run.correspondence, (run.reference, run.candidate)
    if known is None or not run.hidden or run.outcome.differs or run.rule is not None:
        return run
    options = attrs.evolve(run.options, optimizers=False)
    other = type(run)(attrs.evolve(prepared, options=options, tasks=run.tasks), run.progress, stack, run.store)
    said = {"paths": run.hidden, "ones": not options.backward, "unreached": run.unreached}
    try:
        with replaced(run.hidden, known, sides):
            other.step(0)
    except PadiffError as error:
        run.outcome.notes.append(Note("zeros_kept", {**said, "error": str(error).partition("\n")[0]}))
        return run
    finally:
        if options.transfer:
            transfer(known.matches, *sides)
    shown = other if other.outcome.differs else run
    still = run.unreached and not other.outcome.differs and sorted({*run.hidden}.intersection(other.hidden))
    if still:
        run.outcome.notes.append(Note("unreached", {"paths": still}))
    else:
        shown.outcome.notes.append(Note("zeros_replaced", {**said, "differs": other.outcome.differs}))
    return shown
