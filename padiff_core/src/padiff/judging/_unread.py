"""Find inputs that one model alone answers to, where the values given hide it.

A mask of ones, segments of zeros, one step for all samples: a port that never reads such an input gives what the
reference gives, as long as nobody masks anything. No comparison of values tells. So a part of each input that is the
same everywhere is changed on both sides, and who gives the same as before has not read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count, islice

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Side, is_recorded
from padiff.judging._findings import finding_at
from padiff.judging._soundness import tried
from padiff.judging._wholes import Runs, is_mask
from padiff.numerics import ROUNDING, Difference, difference, epsilon, is_array
from padiff.pytree import leaves, map_leaves
from padiff.recording import Task
from padiff.report import Evidence, Figures, Finding, Phase, What
from padiff.trace import Trace, temporary_store


@attrs.frozen
class Unread:
    """An input of both models, and the side whose outputs do not depend on it."""

    index: int
    """Among the reference's inputs."""
    reference: str
    candidate: str
    side: str


def unread_inputs(sides: tuple[Side, Side], tasks: tuple[Task, Task], native: Runs, root: Pair) -> Iterator[Unread]:
    """Yield the matched inputs, the same everywhere and without a gradient to tell, that one side does not read."""
    if any(map(is_recorded, sides)):
        return
    runs = (native.reference, native.candidate)
    for matched in root.inputs:
        changed = [_changed(task, index) for task, index in zip(tasks, matched, strict=True)]
        answers = [task and _answers(side, task, run) for side, task, run in zip(sides, changed, runs, strict=True)]
        if set(answers) == {True, False}:
            i, j = matched
            side = ("reference", "candidate")[answers.index(False)]
            yield Unread(i, root.reference.inputs[i].path, root.candidate.inputs[j].path, side)


def _changed(task: Task, index: int) -> Task | None:
    """Return a task with the second half of an input changed, None where its values are not all the same."""
    given = (*task.args, dict(task.kwargs))
    value = next(islice((np.asarray(leaf) for _, leaf in leaves(given, is_array)), index, None), None)
    if value is None or not (value.dtype.kind in "biu" or is_mask(value)) or np.unique(value).size != 1:
        return None
    other = np.array(value)
    part = other.reshape(-1, other.shape[-1] if other.ndim else 1)
    part[:, part.shape[1] // 2 :] = 1 if not value.any() else value.flat[0].astype(int) - 1
    places = count()
    *args, kwargs = map_leaves(given, is_array, lambda _, leaf: other if next(places) == index else leaf)
    return attrs.evolve(task, args=tuple(args), kwargs=kwargs, backward=False, ends=True)


def _answers(side: Side, task: Task, before: Trace) -> bool | None:
    """Return whether a model gives something else on a task than before; None where it does not run so."""
    with temporary_store() as store:
        after = tried(partial(side.record, task, store, values=False))
        if after is None:
            return None
        pairs = zip(before.outputs, after.outputs, strict=False)
        return any(a.shape != b.shape or not difference(a, b).rel_l2 <= ROUNDING(epsilon(a.dtype)) for a, b in pairs)


def unread_finding(unread: Unread, apart: Difference, root: Pair) -> Finding:
    """Write an input that one side does not read, and that gets a gradient on the other, as a finding."""
    what = What("input_gradient", unread.reference, unread.index)
    evidence = Evidence("input_unread", attrs.asdict(unread))
    return finding_at(root, Phase.BACKWARD, what, evidence, figures=Figures.of(apart), source=True)
