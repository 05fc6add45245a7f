"""Ask no gradient of inputs that a function takes only without one: torch refuses the weights of a loss otherwise."""

from __future__ import annotations

import attrs

from padiff.engine._adapt import Prepared, Request
from padiff.engine._checks import named_arrays
from padiff.errors import PadiffError
from padiff.forcing import Side
from padiff.numerics import is_float
from padiff.recording import Task
from padiff.trace import temporary_store


def without_refused(request: Request, prepared: Prepared) -> Request | None:
    """Return the request without gradients of the inputs that a model refuses; None where it raised for another reason.

    What one side refuses is not asked of the other either, where both are given as many arrays.
    """
    ours, theirs = (_refused(side, task) for side, task in zip(prepared.sides, prepared.tasks, strict=True))
    if len({sum(1 for _ in named_arrays(task)) for task in prepared.tasks}) == 1:
        ours = theirs = ours | theirs
    known = request.inert
    found = known[0] | ours, known[1] | theirs
    return None if found == known else attrs.evolve(request, inert=found)


def _refused(side: Side, task: Task) -> frozenset[int]:
    """Return which arrays among the arguments a side takes only without gradients."""
    floats = frozenset(index for index, (_, array) in enumerate(named_arrays(task)) if is_float(array))
    asked = floats - task.inert
    if not (task.backward and asked) or _runs(side, task, task.inert) or not _runs(side, task, floats):
        return frozenset()
    alone = frozenset(index for index in asked if not _runs(side, task, floats - {index}))
    return alone or asked


def _runs(side: Side, task: Task, inert: frozenset[int]) -> bool:
    with temporary_store() as store:
        try:
            side.record(attrs.evolve(task, inert=inert, ends=True), store, values=False)
        except PadiffError:
            return False
        return True
