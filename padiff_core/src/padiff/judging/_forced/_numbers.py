"""Compare what both models return beside tensors: predicted classes or labels in a list, a metric, boxes in numpy.

They are those of the forced run, made of the reference's own values: of two classes nearly alike rounding chooses none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Forced, Side, is_recorded
from padiff.judging._findings import finding_at
from padiff.judging._forced._free_runs import ends_of
from padiff.judging._tolerance import Rule
from padiff.numerics import (
    ACCUMULATED,
    CONSTANT,
    ROUNDING,
    Array,
    Threshold,
    difference,
    epsilon,
    epsilon_of,
    root_mean_square,
)
from padiff.recording import TEXT, Task
from padiff.report import SIDES, Evidence, Figures, Finding, Note, Phase, What
from padiff.trace import Trace

Numbers = Mapping[str, Array]
_LONGEST = 120
"""Characters of words that are shown."""


def differing_numbers(
    sides: tuple[Side, Side],
    tasks: tuple[Task, Task],
    trace: Trace,
    forced: Forced,
    root: Pair,
    rule: Rule | None,
    step: int,
) -> Iterator[Finding | Note]:
    """Yield the numbers that differ; notes of those that one side alone returns, or the reference not twice.

    A ``rule`` is the user's own, for floating numbers. Of those that may be apart by rounding both models tell in
    float64, where they run so.
    """
    (reference, _), (task, _) = sides, tasks
    ours, theirs = trace.numbers, forced.numbers
    if is_recorded(reference):
        return
    sizes = (epsilon_of(leaf.dtype) for made in root.made for leaf in made)
    eps = max(sizes, default=0.0) or epsilon_of("float32")
    # A sum that vanishes is rounding of what was added up.
    least = ROUNDING(eps) * max((root_mean_square(one) for one in trace.outputs if one.dtype.kind == "f"), default=0.0)

    def differing_by(most: Threshold) -> list[str]:
        both = ((path, ours[path], theirs[path]) for path in ours if path in theirs)
        return [path for path, a, b in both if not _is_same(a, b, eps, least, rule, most)]

    differing = differing_by(ACCUMULATED)
    close = [path for path in differing_by(ROUNDING) if path not in differing]
    wide = [ends_of(*one, dtype="float64", backward=False) for one in zip(sides, tasks, strict=True)] if close else []
    tables = [run.numbers for run in wide if run is not None]
    for path in close if len(tables) == len(sides) else ():
        a, b = (table.get(path) for table in tables)
        if a is not None and b is not None and not _is_same(a, b, 0.0, least, rule, CONSTANT):
            differing.append(path)
    once_more = ends_of(reference, task, seed=task.seed + 1, backward=False) if differing else None
    again: Numbers = ours if once_more is None else once_more.numbers  # what cannot be run again is not known to vary
    for path in differing:
        if path not in again or not np.array_equal(ours[path], again[path], equal_nan=_is_floating(ours[path])):
            yield Note("numbers_vary", {"name": path})
            continue
        figures = None
        if ours[path].shape == theirs[path].shape and TEXT not in (ours[path].dtype, theirs[path].dtype):
            figures = Figures.of(difference(_wide(ours[path]), _wide(theirs[path])))
        data = {side: _shown(one) for side, one in zip(SIDES, (ours[path], theirs[path]), strict=True)}
        what = What("number", path)
        rest: dict[str, Any] = {"figures": figures, "source": True, "step": step}
        yield finding_at(root, Phase.FORWARD, what, Evidence("numbers", data), **rest)
    for side, here, there in zip(SIDES, (ours, theirs), (theirs, ours), strict=True):
        alone = [path for path in sorted(here.keys() - there.keys()) if here[path].size and here[path].dtype != TEXT]
        if alone:
            yield Note("numbers_alone", {"side": side, "names": alone})


def _is_floating(array: Array) -> bool:
    return array.dtype.kind in "fc"


def _is_same(ours: Array, theirs: Array, eps: float, least: float, rule: Rule | None, most: Threshold) -> bool:
    if ours.shape != theirs.shape:
        return False
    if not (_is_floating(ours) or _is_floating(theirs)):
        return bool((ours == theirs).all())
    if rule is not None:
        return rule(_wide(ours), _wide(theirs))
    bound = most(max(eps, *(epsilon(one.dtype) for one in (ours, theirs))))
    apart = difference(_wide(ours), _wide(theirs))
    return not apart.nan_mismatch and (apart.rel_l2 <= bound or apart.max_abs <= least)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _shown(array: Array) -> str:
    if array.dtype == TEXT:
        words = array.tobytes().decode("utf-32-le")
        return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."
    text = np.array2string(array, threshold=6, edgeitems=3, separator=", ").replace("\n", "")
    return text if array.ndim == 0 else f"{text} of shape {list(array.shape)}"
