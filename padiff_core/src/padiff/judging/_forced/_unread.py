"""Find inputs that the two models answer to otherwise, where the values given hide it.

A mask of ones, segments of zeros, one step for all samples: a port that never reads such an input gives what the
reference gives, as long as nobody masks anything. No comparison of values tells. So a part of each input that is the
same everywhere is changed on both sides, and who gives the same as before has not read it. Where both read it and then
give something else, they do so for values that hide nothing: a mask that is read the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import attrs
import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Forced, Side, is_recorded
from padiff.judging._findings import finding_at
from padiff.judging._forced._free_runs import ends_of
from padiff.judging._forced._wholes import Runs, is_mask
from padiff.numerics import GROSS, ROUNDING, Array, Threshold, difference, epsilon, is_array
from padiff.pytree import leaves, map_leaves
from padiff.recording import Task
from padiff.report import SIDES, Evidence, Figures, Finding, Note, Phase, What


def unread_inputs(
    sides: tuple[Side, Side], tasks: tuple[Task, Task], native: Runs, root: Pair, forced: Forced
) -> Iterator[Finding | Note]:
    """Yield the matched inputs that the sides read otherwise, as findings where one side alone gives them a gradient.

    They are the same everywhere, and hide what differs: else that is a note. It tells the input's names, the ``side``
    whose outputs do not depend on it, if only one does, and else how far ``apart`` the outputs are then.
    """
    gradients = {check.index: check.difference for check in forced.inputs if check.alone}
    before = native.reference.outputs, native.candidate.outputs
    for i, j in () if any(map(is_recorded, sides)) else root.inputs:
        both = zip(sides, (_changed(tasks[0], i), _changed(tasks[1], j)), strict=True)
        runs = [None if task is None else ends_of(side, task, backward=False) for side, task in both]
        after = [run.outputs for run in runs if run is not None]
        if len(after) < len(sides):
            continue
        answers = [_largest_beyond(*both) > 0.0 for both in zip(before, after, strict=True)]
        names = dict(zip(SIDES, (root.reference.inputs[i].path, root.candidate.inputs[j].path), strict=True))
        told: dict[str, Any] = {"index": i, **names, "side": "", "apart": 0.0}
        if answers[0] is not answers[1]:
            told["side"] = SIDES[answers.index(False)]
            if i in gradients:
                what, figures = What("input_gradient", told["reference"], i), Figures.of(gradients[i])
                evidence = Evidence("input_unread", told)
                yield finding_at(root, Phase.BACKWARD, what, evidence, figures=figures, source=True)
            else:
                yield Note("input_unread", told)
        elif answers[0] and 0.0 < (apart := _between(root, *after)) < float("inf") and not _between(root, *before):
            yield Note("input_hides", {**told, "apart": apart})


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
    return attrs.evolve(task, args=tuple(args), kwargs=kwargs)


def _between(root: Pair, ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """Return how far apart both sides' outputs are, where that is gross."""
    matched = [(a, b) for a, b in root.outputs if a < len(ours) and b < len(theirs)]
    return _largest_beyond([ours[a] for a, _ in matched], [theirs[b] for _, b in matched], GROSS)


def _largest_beyond(ours: Sequence[Array], theirs: Sequence[Array], bound: Threshold = ROUNDING) -> float:
    """Return the largest relative L2 beyond a threshold between outputs, zero where there is none."""
    apart = ((difference(a, b).rel_l2, bound(epsilon(a.dtype))) for a, b in zip(ours, theirs, strict=False))
    return max((error for error, most in apart if error > most), default=0.0)
