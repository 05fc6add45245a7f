"""Run whole models freely under a condition, in float64, say; what does not run so is no error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from padiff.forcing import Side
from padiff.judging._forced._wholes import Runs
from padiff.recording import Task, warn_if_internal
from padiff.trace import Trace, ValueStore, temporary_store

Sides = tuple[Side, Side]
Tasks = tuple[Task, Task]


def both_runs(sides: Sides, tasks: Tasks, store: ValueStore, **condition: Any) -> Runs | None:
    """Run both models freely under a condition; None where one of them does not run so."""
    found = []
    for side, task in zip(sides, tasks, strict=True):
        task = attrs.evolve(task, **condition)
        trace = tried(partial(side.record, task, store, values=task.backward))
        if trace is None:
            return None
        found.append(trace)
    return Runs(*found)


def tried(run: Callable[[], Trace]) -> Trace | None:
    """Return what a run gives, None where the model does not run so."""
    try:
        return run()
    except Exception as error:  # a kernel without float64, a model without evaluation mode: another way is taken
        warn_if_internal(error)
        return None


def ends_of(side: Side, task: Task, **condition: Any) -> Trace | None:
    """Return what a model gives under a condition, in its outputs alone; None where it does not run so."""
    with temporary_store() as store:
        return tried(partial(side.record, attrs.evolve(task, ends=True, **condition), store, values=False))
