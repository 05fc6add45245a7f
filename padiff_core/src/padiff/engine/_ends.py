"""Tell where the backward passes of both models start: at the outputs that both have."""

from __future__ import annotations

from padiff.alignment import Pair
from padiff.recording import Task

__all__ = ["backward_starts"]

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
