"""A side of which only a recorded run is left: what it did can be read, and nothing can be run again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import attrs

from padiff.errors import InputError
from padiff.numerics import Array
from padiff.recording import Orders, Task, reread
from padiff.trace import Description, Flow, Trace, ValueStore, flow_of


class NotRepeated(InputError):
    """A run, or a call by itself, under other conditions than those that were recorded."""


@attrs.define(eq=False)
class RecordedSide:
    """A model as it was in one step of a recorded run."""

    about: Description
    trace: Trace
    before: Mapping[str, tuple[Trace, int]] = attrs.field(factory=dict)
    """Path of a parameter or buffer -> the trace that knows its value before the step, and the key there."""
    first: Trace | None = None
    """The first recorded step, with which the dataflow is noted; None where this is it."""

    @property
    def whole(self) -> bool:
        """Return whether the value of every parameter is known."""
        return all(path in self.before and self.before[path][1] >= 0 for path in self.about.parameters)

    def value(self, path: str) -> Array:
        """Return the value that a parameter or buffer had before the step; raises `InputError` where none was kept."""
        trace, key = self.before.get(path, (self.trace, -1))
        if key < 0:
            msg = f"the run does not hold the value of {path!r}.\nHint: record it with values='tensors'."
            raise InputError(msg)
        return trace.array(key)

    def flow(self, task: Any) -> Flow:
        """Return the dataflow: what was noted of it, or what the recorded calls show."""
        return flow_of(self.trace if self.first is None else self.first)

    def permuted(self, axes: Orders) -> RecordedSide:
        """Return the side, with some tensors read in another order of axes."""
        return RecordedSide(self.about, reread(self.trace, axes), self.before, self.first)

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Leave everything as it was recorded."""

    def native(self, path: str) -> None:
        """Return None: there is no live module."""

    def find(self, native: Any) -> None:
        """Return None: there is no live module."""

    def force(self, *_: Any) -> NoReturn:
        """Raise `NotRepeated`: a recorded run cannot be run again."""
        msg = "a recorded run cannot be run again.\nHint: padiff.diff() compares models."
        raise NotRepeated(msg)

    def record(self, task: Task, store: ValueStore, *, values: bool = True) -> Trace:
        """Raise `NotRepeated`."""
        self.force()


def weights_of(trace: Trace, earlier: Trace | None) -> dict[str, tuple[Trace, int]]:
    """Return where the values of parameters before a step lie: in its trace, or in that of the step before."""
    found = {} if earlier is None else {path: (earlier, key) for path, key in earlier.updated.items()}
    own = {path: (trace, key) for path, key in trace.weights.items() if key >= 0 or path not in found}
    return {**found, **own}
