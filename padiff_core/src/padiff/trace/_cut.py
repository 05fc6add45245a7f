"""Read a trace as if some values had fewer rows: what a model pads is no part of what it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from numpy.typing import NDArray

from padiff.trace._directory import Samples
from padiff.trace._records import Call, Leaf, Trace
from padiff.trace._values import Lent, ValueStore

_HELD = ("weights", "updated", "buffers", "parameter_gradients")


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


@attrs.frozen
class _CutLent:
    """Where a value lies of which a part is read: see `Lent`."""

    inner: Lent
    cut: Cut

    @property
    def bytes(self) -> int:
        """Return how many bytes the whole takes."""
        return self.inner.bytes

    @property
    def name(self) -> str | None:
        """Return what no other value is called."""
        return self.inner.name and f"{self.inner.name} {self.cut!r}"

    def read(self) -> NDArray[Any]:
        """Return what is read of it."""
        return self.cut.read(self.inner.read())


class _CutStore(ValueStore):
    """A store that shows a part of some values of another."""

    def __init__(self, inner: ValueStore) -> None:
        super().__init__(0)
        self._inner = inner
        self.cuts: dict[int, Cut] = {}

    def get(self, key: int) -> NDArray[Any]:
        """Return the array of a key; never write to it."""
        found = self._inner.get(key)
        return self.cuts[key].read(found) if key in self.cuts else found

    def lent(self, key: int) -> Lent | None:
        """Return what reads an array in another process too, or None."""
        inner = self._inner.lent(key)
        return _CutLent(inner, self.cuts[key]) if inner is not None and key in self.cuts else inner


def cut_trace(trace: Trace, parameters: Mapping[str, Cut], of: Callable[[Call, str, Leaf], Cut | None]) -> Trace:
    """Return a trace as it would be had some parameters, and tensors of calls, fewer rows.

    ``of`` returns what is read of a tensor that a call takes (``input``) or gives (``output``); None for all of it.
    """
    store = _CutStore(trace.store)
    new = attrs.evolve(trace, store=store, calls=[])
    made: dict[Call, Call] = {}
    for call in trace.calls:
        leaves: dict[str, list[Leaf]] = {}
        for side, held in (("input", call.inputs), ("output", call.outputs)):
            cuts = [of(call, side, leaf) for leaf in held]
            leaves[side] = [
                leaf if cut is None else attrs.evolve(leaf, shape=cut.shape(leaf.shape))
                for leaf, cut in zip(held, cuts, strict=True)
            ]
            for leaf, cut in zip(held, cuts, strict=True):
                keys = (trace.values.get(leaf.token), trace.gradients.get(leaf.token))
                store.cuts.update({key: cut for key in keys if cut is not None and key is not None})
        parent = None if call.parent is None else made[call.parent]
        inputs, outputs = leaves["input"], leaves["output"]
        made[call] = attrs.evolve(call, parent=parent, children=[], inputs=inputs, outputs=outputs)
        new.calls.append(made[call])
        if parent is not None:
            parent.children.append(made[call])
    for path, cut in parameters.items():
        store.cuts.update({getattr(trace, name)[path]: cut for name in _HELD if path in getattr(trace, name)})
    records = trace.parameters.items()
    new.parameters = {
        path: attrs.evolve(one, shape=parameters[path].shape(one.shape)) if path in parameters else one
        for path, one in records
    }
    new.samples = Samples(new)
    return new
