"""Read a trace as if some values had fewer rows: what a model pads is no part of what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.trace._directory import Samples
from padiff.trace._records import OF_PARAMETERS, Call, Leaf, Trace
from padiff.trace._values import ReadStore


@attrs.frozen
class Cut:
    """How many rows along an axis are read, the first ones."""

    axis: int
    count: int

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of what is read of a value."""
        return (*shape[: self.axis], self.count, *shape[self.axis + 1 :])

    def read(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return what is read of a value; a view."""
        return array[(*[slice(None)] * self.axis, slice(self.count))]


def cut_trace(trace: Trace, parameters: Mapping[str, Cut], of: Callable[[Call, str, Leaf], Cut | None]) -> Trace:
    """Return a trace as it would be had some parameters, and tensors of calls, fewer rows.

    ``of`` returns what is read of a tensor that a call takes (``input``) or gives (``output``); None for all of it.
    """
    store = ReadStore(trace.store)
    new = attrs.evolve(trace, store=store, calls=[])
    made: dict[Call, Call] = {}

    def show(keys: Iterable[int | None], cut: Cut) -> None:
        store.readings.update({key: (key, cut) for key in keys if key is not None})

    def read(call: Call, side: str, leaf: Leaf) -> Leaf:
        cut = of(call, side, leaf)
        if cut is None:
            return leaf
        show((trace.values.get(leaf.token), trace.gradients.get(leaf.token)), cut)
        return attrs.evolve(leaf, shape=cut.shape(leaf.shape))

    for call in trace.calls:
        parent = None if call.parent is None else made[call.parent]
        inputs = [read(call, "input", leaf) for leaf in call.inputs]
        outputs = [read(call, "output", leaf) for leaf in call.outputs]
        made[call] = new.add(attrs.evolve(call, parent=parent, children=[], inputs=inputs, outputs=outputs))
    for path, cut in parameters.items():
        show([getattr(trace, name).get(path) for name in OF_PARAMETERS], cut)
    records = trace.parameters.items()
    new.parameters = {
        path: attrs.evolve(one, shape=parameters[path].shape(one.shape)) if path in parameters else one
        for path, one in records
    }
    new.samples = Samples(new)
    return new
