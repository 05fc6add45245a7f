"""The order in which a value is read, where the other model holds the same numbers in another one."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from padiff.numerics import Array


@attrs.frozen
class Order:
    """What takes a native array to the other model's order: a permutation of its axes, then of one axis's rows."""

    axes: tuple[int, ...]
    """As numpy's transpose takes it."""
    rows: tuple[int, ...] = ()
    """The rows to take, of those along the axis ``along``; none where they are in order."""
    along: int = 0

    @property
    def plain(self) -> bool:
        """Return whether nothing is permuted."""
        return self.axes == tuple(range(len(self.axes))) and self.rows == tuple(range(len(self.rows)))

    def read(self, array: Array) -> Array:
        """Return a native array in the other model's order; a view where only axes are permuted."""
        found = array.transpose(self.axes)
        return found.take(self.rows, self.along) if self.rows else found

    def natively(self, array: Array) -> Array:
        """Return an array of the other model's order in the native one."""
        found = array.take(np.argsort(self.rows), self.along) if self.rows else array
        return found.transpose(np.argsort(self.axes))

    def shape(self, native: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that a native one has in the other model."""
        return tuple(native[axis] for axis in self.axes)

    def then(self, other: Order) -> Order:
        """Return the order that reads in this one, and what comes of it in another; rows along one axis only."""
        axes = tuple(self.axes[axis] for axis in other.axes)
        if not self.rows:
            return Order(axes, other.rows, other.along)
        along = other.axes.index(self.along)
        if other.rows and other.along == along:
            return Order(axes, tuple(self.rows[row] for row in other.rows), along)
        return Order(axes, self.rows, along)


Turns = Mapping[tuple[str, int, str, int], Order]
"""(path and ordinal of a call, ``input`` or ``output``, index of the tensor) -> how it is read there."""


def composed(turns: Turns, further: Turns) -> Turns:
    """Return how tensors are read that are read in one order, and what comes of it in a further one."""
    both = {**turns, **further}
    for place in turns.keys() & further.keys():
        both[place] = turns[place].then(further[place])
    return {place: order for place, order in both.items() if not order.plain}
