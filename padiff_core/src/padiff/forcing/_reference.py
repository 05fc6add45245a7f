"""Be the reference of a diff whose model is elsewhere: what it did in a recorded run stands for it, step after step.

What was recorded answers what a run under the same conditions would: the run itself, and each of its calls by itself,
in its own types and from its own seed. What asks for other conditions is refused, and judged by the candidate alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from padiff.errors import BackwardError
from padiff.forcing._checks import Observed
from padiff.forcing._messages import Given, Replayed, ReplayRequest
from padiff.forcing._recorded import RecordedSide, weights_of
from padiff.numerics import Array
from padiff.paths import parent
from padiff.recording import Cuts, Orders, Task, reread
from padiff.trace import Description, Run, Trace, ValueStore, cut_description


class NotRecorded(BackwardError):
    """A backward pass that cannot be compared, since it is not known where the recorded one started."""


class _CutRun:
    """A run of which some tensors, and some parameters, are read in part."""

    def __init__(self, inner: Run, axes: Orders, cuts: Cuts) -> None:
        self._inner, self._axes, self._cuts = inner, axes, cuts
        self.about: Description = cut_description(inner.about, cuts)

    def trace(self, step: int) -> Trace:
        """Return what was recorded of a step."""
        return reread(self._inner.trace(step), self._axes, self._cuts)

    def __getattr__(self, name: str) -> Any:
        """Be the run in all else."""
        return getattr(self._inner, name)


class RecordedReference(RecordedSide):
    """The model of a recorded run, at one of its steps after the other."""

    def __init__(self, run: Run, step: int) -> None:
        self.run = run
        self.open(step)
        self.seed = self.trace.start_seed or 0

    def open(self, step: int) -> None:
        """Go to a step; its parameters have the values that they had before it.

        Raises `InputError` where the run does not hold the step.
        """
        self._step = step
        before = self.run.trace(step - 1) if step - 1 in self.run.steps else None
        trace = self.run.trace(step)
        trace.outputs = [value for leaf in trace.root.outputs if (value := trace.value(leaf)) is not None]
        given = enumerate(trace.root.inputs)
        sent = {index: value for index, leaf in given if (value := trace.gradient(leaf)) is not None}
        trace.input_gradients = {index: np.asarray(value) for index, value in sent.items()}
        first = trace if trace.flow is not None else self.run.trace(self.run.steps[0])
        super().__init__(self.run.about, trace, weights_of(trace, before), first)
        self._stepped = False

    def prepare(self, loss: Any, optimizer: Any, *, index: int) -> Given:
        """Take note of a loss; the optimizer's steps are recorded."""
        return Given(loss is not None)

    def takes(self, optimizer: Any) -> bool:
        """Return False: it has no framework here."""
        return False

    def check_dtype(self, dtype: str) -> None:
        """Take whatever was recorded."""

    def shared(self, other: Any) -> list[str]:
        """Return nothing: no parameter lies here."""
        return []

    def preserved(self) -> AbstractContextManager[None]:
        """Change nothing."""
        return nullcontext()

    def permuted(self, axes: Orders, cuts: Cuts | None = None) -> RecordedReference:
        """Return itself: it is the candidate that is read in another order. With ``cuts`` it is read so from now on."""
        if cuts:
            self.run = _CutRun(self.run, axes, cuts)
            self.open(self._step)
        return self

    def value(self, path: str) -> Array:
        """Return the value of a parameter or buffer: before the step, or after it once it was taken."""
        return self.trace.array(self.trace.updated[path]) if self._stepped else super().value(path)

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        """Take the step of the optimizer as it was recorded."""
        self._stepped = True

    def record(self, task: Task, store: ValueStore, *, values: bool = True) -> Trace:
        """Return the run as it was recorded; raise `NotRepeated` where another one is asked for.

        Raises `NotRecorded` where the backward pass should start at fewer outputs than it did.
        """
        trace = self.trace
        evaluating = task.evaluating and any(call.training for call in trace.calls)
        if task.dtype is not None or task.disturbed or task.loss_noise or evaluating or task.seed != self.seed:
            self.force()
        if task.backward and task.starts is not None:
            left = set(range(len(trace.root.outputs))) - {index for index, _ in task.starts}
            if any(trace.gradient(trace.root.outputs[index]) is not None for index in left):
                msg = "the recorded gradients come from an output too that the candidate does not return"
                raise NotRecorded(msg)
        return trace

    def replay(self, request: ReplayRequest) -> Replayed:
        """Return what a call did in the run; raise `NotRepeated` where it should do it under other conditions.

        The gradient of a tensor that comes from outside the call is what all who took it sent, not the call alone.
        """
        trace, call = self.trace, request.call
        other = request.dtype is not None or request.idle or request.settings or request.watching or request.rounding
        evaluating = request.evaluating and any(one.training for one in call.subtree())
        if other or evaluating or request.seed != self.seed or request.values is not trace:
            self.force()
        observed = Observed()
        for one in call.subtree():
            for leaf in (*one.inputs, *one.outputs):
                value = trace.value(leaf)
                if value is not None:
                    observed.values.setdefault(leaf.token, value)
        called = trace.by_module()
        alone = {one.path for one in call.subtree() if len(called.get(one.path, ())) == 1}
        own = {path for path in trace.parameters if parent(path) in alone}
        gradients, buffers = (
            {path: trace.array(key) for path, key in named.items() if path in own and key >= 0}
            for named in (trace.parameter_gradients, trace.buffers)
        )
        return Replayed(observed, [], gradients if request.backward else {}, buffers, recorded=True)


def is_recorded(side: Any) -> bool:
    """Return whether a side is one of which only a recorded run is left."""
    return isinstance(side, RecordedReference)
