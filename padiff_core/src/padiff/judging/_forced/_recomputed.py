"""Tell where a side computes something else again in its backward pass than it computed forward.

A forced run computes it once, so that hooks see its gradients: see `padiff.adapter.Recomputation`.
"""

from __future__ import annotations

import math

import attrs

from padiff.alignment import Alignment
from padiff.forcing import Side, is_recorded
from padiff.judging._findings import finding_at
from padiff.numerics import NEGLIGIBLE_GRADIENT, RANDOM, difference, epsilon
from padiff.paths import last, parent
from padiff.recording import Task
from padiff.report import SIDES, Cause, Evidence, Figures, Finding, Note, Phase, What
from padiff.trace import Trace, temporary_store


def recomputed_otherwise(
    sides: tuple[Side, Side],
    tasks: tuple[Task, Task],
    traces: tuple[Trace, Trace],
    alignment: Alignment,
    step: int,
) -> Finding | Note | None:
    """Return a finding where recomputation changes the gradients of one side, and of the other it does not.

    Each side is held against itself without recomputation, under one seed: random numbers that are drawn anew for what
    is computed again show, too. Where it changes those of both, a note says that they were not compared so.
    """
    changed = [_changed(*each) for each in zip(sides, tasks, traces, strict=True)]
    if all(changed):
        return Note("recomputed_otherwise")
    if not any(changed):
        return None
    ours = bool(changed[0])
    apart = changed[not ours]
    # Gradients come from behind: what is called last is nearest to what differs first.
    pair = next(
        (
            pair
            for pair in reversed(alignment.pairs)
            if (pair.reference if ours else pair.candidate).path in {parent(path) for path in apart}
        ),
        alignment.pairs[0],
    )
    path = (pair.reference if ours else pair.candidate).path
    names = [name for name in apart if parent(name) == path] or list(apart)
    worst = max(names, key=lambda name: apart[name].rel_l2)
    return finding_at(
        pair,
        Phase.BACKWARD,
        What("parameter_gradient", last(worst)),
        Evidence.of("recomputed", side=SIDES[not ours], rel_l2=apart[worst].rel_l2),
        figures=apart[worst],
        cause=Cause("recomputation", {"side": SIDES[not ours]}, verified=True),
        source=True,
        step=step,
    )


def _changed(side: Side, task: Task, trace: Trace) -> dict[str, Figures]:
    """Return the parameters of a side whose gradients are others where it computes again, with how far apart."""
    if not trace.recomputes or is_recorded(side):
        return {}
    with temporary_store() as store:
        once, again = (side.record(attrs.evolve(task, recomputing=how), store) for how in (False, True))
        found, size, error, eps = {}, 0.0, 0.0, 0.0
        for path, key in once.parameter_gradients.items():
            ours, other = once.array(key), again.parameter_gradients.get(path)
            apart = difference(ours, ours * 0 if other is None else again.array(other))
            norm = apart.scale * math.sqrt(apart.count) if math.isfinite(apart.scale) else 0.0
            size, eps = math.hypot(size, norm), max(eps, epsilon(ours.dtype))
            error = math.hypot(error, norm * apart.rel_l2 if apart.rel_l2 else 0.0)
            if apart.rel_l2 > _bound(epsilon(ours.dtype)):
                found[path] = Figures.of(apart)
    return found if error > _bound(eps) * size else {}


def _bound(eps: float) -> float:
    """Return how far apart gradients of one framework may be under one seed, where kernels sum in any order."""
    return min(NEGLIGIBLE_GRADIENT(eps), RANDOM(eps))
