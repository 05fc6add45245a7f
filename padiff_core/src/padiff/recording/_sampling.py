"""Tell which calls of a run take random numbers: the state of the generators is another one after their code."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import attrs

from padiff.adapter import Model, Module
from padiff.errors import PadiffError
from padiff.recording._live import Live
from padiff.recording._record import guarded_run
from padiff.recording._task import Task
from padiff.recording._watcher import Watcher
from padiff.trace import Call, Trace


def mark_sampling(model: Model, task: Task, trace: Trace, live: Live) -> None:
    """Mark the calls of a trace whose own code takes random numbers.

    The model runs forward again for that: to look at the generators around every call costs too much where none is
    taken in the whole run.
    """
    if not trace.sampled:
        for call in trace.calls:
            call.sampled = trace.sampled
        return
    watcher = _Sampling(model, live)
    task = attrs.evolve(task, backward=False, loss=None)
    with model.adapter.seeded(task.seed), model.preserved():
        watcher.begin()
        try:
            guarded_run(model, task, watcher, lambda _: [], backward=False)
        except PadiffError:  # what runs but once is judged without
            return
    taken = {call.key for call in watcher.calls if call.sampled}
    for call in trace.calls:
        call.sampled = call.key in taken


class _Sampling(Watcher):
    """A listener that looks at the generators wherever the code of one call ends, and that of another begins."""

    def __init__(self, model: Model, live: Live) -> None:
        super().__init__(model.adapter, live)
        self._state: Hashable = None

    def begin(self) -> None:
        """Know the state before the run."""
        self._state = self.adapter.random_state()

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """Open a call."""
        self._look(self.open_call())
        return super().enter(module, args, kwargs)

    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any | None:
        """Close a call."""
        self._look(self.open_call())
        return super().leave(module, args, kwargs, output)

    def _look(self, call: Call | None) -> None:
        state = self.adapter.random_state()
        if call is not None:
            call.sampled = bool(call.sampled) or state != self._state
        self._state = state
