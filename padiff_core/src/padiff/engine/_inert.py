"""Ask no gradient of inputs that a function takes only without one, or sends none to: weights and targets of a loss.

torch refuses weights that require a gradient. Paddle's losses send their targets no gradient, torch's do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

import attrs

from padiff.engine._adapt import Prepared, Request
from padiff.engine._checks import named_arrays
from padiff.engine._run import Run
from padiff.errors import PadiffError
from padiff.forcing import Side
from padiff.judging import is_frameworks
from padiff.numerics import is_float
from padiff.options import DiffOptions
from padiff.recording import Task
from padiff.report import SIDES, Finding
from padiff.trace import Trace, temporary_store


def without_refused(request: Request, prepared: Prepared) -> Request | None:
    """Return the request without gradients of the inputs that a model refuses; None where it raised for another reason.

    What one side refuses is not asked of the other either, where both are given as many arrays.
    """
    ours, theirs = (_refused(side, task) for side, task in zip(prepared.sides, prepared.tasks, strict=True))
    if len({sum(1 for _ in named_arrays(task)) for task in prepared.tasks}) == 1:
        ours = theirs = ours | theirs
    return _with(request, ours, theirs)


def _with(request: Request, ours: Iterable[int], theirs: Iterable[int]) -> Request | None:
    found = request.inert[0].union(ours), request.inert[1].union(theirs)
    return None if found == request.inert else attrs.evolve(request, inert=found)


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


def without_targets(request: Request, run: Run, prepare: Callable[[Request, DiffOptions], Prepared]) -> Request | None:
    """Return the request without gradients of inputs that come on one side alone, since the other's function has none.

    None where there are none such: what the other side's own code detaches is a fault. An optimizer has stepped.
    """
    found = [one for one in run.outcome.findings if one.rests_on("gradient_to_one")]
    if not found or run.correspondence is None or run.options.optimizers:
        return None
    ties = run.correspondence.alignment.pairs[0].inputs
    prepared = prepare(request, attrs.evolve(run.options, operations=True, steps=1))
    cut: set[tuple[int, int]] = set()
    for at, (side, task) in enumerate(zip(prepared.sides, prepared.tasks, strict=True)):
        lacking = {one.what.index for one in found if _side_with(one) != SIDES[at]}
        tied = {tie for tie in ties if tie[0] in lacking}
        none = _sent_none(side, task, {tie[at] for tie in tied}) if tied else set()
        cut |= {tie for tie in tied if tie[at] in none}
    return _with(request, (ours for ours, _ in cut), (theirs for _, theirs in cut))


def _side_with(finding: Finding) -> str:
    """Return the side on which alone a gradient comes."""
    return next(str(one.figures["side"]) for one in finding.evidence if one.kind == "gradient_to_one")


def _sent_none(side: Side, task: Task, lacking: Set[int]) -> set[int]:
    """Return those of the inputs lacking a gradient to which a function sends none."""
    with temporary_store() as store:
        try:
            trace = side.record(task, store, values=False)
        except PadiffError:
            return set()
        return {index for index in lacking if _sends_none(trace, index, lacking)}


def _sends_none(trace: Trace, index: int, lacking: Set[int]) -> bool:
    """Return whether an input, and what is made of it, meets what gets a gradient, and nothing detaches it before.

    What is made of inputs ``lacking`` one alone gets none either: these excuse each other of nothing.
    """
    own, without = {trace.root.inputs[index].token}, {trace.root.inputs[one].token for one in lacking}
    meets = False
    for call in trace.calls:
        taken = [leaf for leaf in call.inputs if leaf.token in without]
        given = [leaf for leaf in call.outputs if "float" in leaf.dtype]
        if call.children or not (taken and given and (call.module.operation or is_frameworks(call.module))):
            continue
        mine = any(leaf.token in own for leaf in taken)
        if mine and not all(leaf.differentiable for leaf in (*taken, *given)):
            return False
        if any(leaf.differentiable and leaf.token not in without for leaf in call.inputs):
            meets |= mine
        else:
            made = {leaf.token for leaf in given}
            own, without = own | made if mine else own, without | made
    return meets
