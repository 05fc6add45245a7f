"""Tell where the backward passes of both models start: at the outputs that both have, or where a run recorded it."""

from __future__ import annotations

from padiff.alignment import Pair
from padiff.forcing import Check, NotRecorded
from padiff.judging import Judge
from padiff.numerics import NEGLIGIBLE_GRADIENT, epsilon_of
from padiff.recording import Task

Starts = tuple[tuple[int, int], ...] | None


def backward_starts(root: Pair, tasks: tuple[Task, Task], *, loss: bool) -> tuple[Starts, Starts]:
    """Return `Task.starts` of the reference and of the candidate, of whose root calls the outputs are matched.

    What one side returns alone, a cache say, would send a gradient that the other side does not get. Matched outputs
    get the same gradient, wherever they stand. Where a loss decides, or nothing is in common, nothing is left out.
    """
    if loss or not tasks[0].backward or not root.outputs:
        return None, None
    alone = len(root.outputs) < len(root.reference.outputs)
    ours = tuple((i, i) for i, _ in root.outputs) if alone else None
    same = not alone and all(i == j for i, j in root.outputs) and len(root.outputs) == len(root.candidate.outputs)
    return ours, None if same else tuple((j, i) for i, j in root.outputs)


def check_starts(task: Task, judge: Judge) -> None:
    """Raise `NotRecorded` where it is not known from which outputs the recorded backward pass started.

    What came to an output is known as a whole; of one that the model itself goes on with, a part came from inside.
    Where gradients came to several outputs, backward starts from one. Where what then comes to the others is what was
    recorded, all of it came through that one, which then is made of them, and they are not made of it. Else what is
    right cannot be told from what is wrong.
    """
    root, trace = judge.alignment.pairs[0].reference, judge.trace
    ends = {leaf.token: leaf.path for leaf in root.outputs if trace.gradient(leaf) is not None}
    if task.sent is None or trace.by_value or len(ends) < 2:
        return
    found = next((one for one in judge.forced.checks if one.spot.reference.token in ends and _is_other(one)), None)
    if found is not None:
        name = ends[found.spot.reference.token]
        msg = f"gradients came to {len(ends)} outputs of the recorded model, and which of them its caller sent is not "
        msg += f"known (see output {name}; give the loss of its training)"
        raise NotRecorded(msg)


def _is_other(check: Check) -> bool:
    """Return whether a gradient is another than what was sent, but for the casts of the candidate's types."""
    eps = epsilon_of(check.spot.reference.dtype, check.spot.candidate.dtype)
    return check.backward and check.difference.rel_l2 > NEGLIGIBLE_GRADIENT(eps)
