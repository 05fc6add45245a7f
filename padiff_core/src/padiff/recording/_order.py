"""The order in which a value is read, where the other model holds the same numbers in another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import numpy as np

from padiff.numerics import Array
from padiff.trace import Cut


@attrs.frozen
class Order:
    """What takes a native array to the other model's order: a permutation of its axes, then of one axis's rows.

    Of what one model pads, the real rows are read, before anything else.
    """

    axes: tuple[int, ...]
    """As numpy's transpose takes it."""
    rows: tuple[int, ...] = ()
    """The rows to take, of those along the axis ``along``; none where they are in order."""
    along: int = 0
    cut: Cut | None = None
    """What is read of a value at all; None for all of it."""

    @property
    def plain(self) -> bool:
        """Return whether all is read as it is."""
        return self.cut is None and not self.reorders

    @property
    def reorders(self) -> bool:
        """Return whether axes or rows are permuted."""
        return self.axes != tuple(range(len(self.axes))) or self.rows != tuple(range(len(self.rows)))

    def read(self, array: Array) -> Array:
        """Return a native array in the other model's order; a view where only axes are permuted."""
        found = (array if self.cut is None else self.cut.read(array)).transpose(self.axes)
        return found.take(self.rows, self.along) if self.rows else found

    def natively(self, array: Array) -> Array:
        """Return an array of the other model's order in the native one; what the other lacks is zero."""
        found = array.take(np.argsort(self.rows), self.along) if self.rows else array
        found = found.transpose(np.argsort(self.axes))
        return found if self.cut is None else self.cut.filled(found)

    def over(self, array: Array, native: Callable[[], Array]) -> Array:
        """Return an array of the other model's order in the native one; what the other lacks is as it is there."""
        found = self.natively(array)
        if self.cut is not None:
            real, found = self.cut.read(found), np.array(native(), found.dtype)
            self.cut.read(found)[...] = real
        return found

    def shape(self, native: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that a native one has in the other model."""
        native = native if self.cut is None else self.cut.shape(native)
        return tuple(native[axis] for axis in self.axes)

    def then(self, other: Order) -> Order:
        """Return the order that reads in this one, and what comes of it in another; rows along one axis only."""
        axes = tuple(self.axes[axis] for axis in other.axes)
        if not self.rows:
            return Order(axes, other.rows, other.along, self.cut)
        along = other.axes.index(self.along)
        if other.rows and other.along == along:
            return Order(axes, tuple(self.rows[row] for row in other.rows), along, self.cut)
        return Order(axes, self.rows, along, self.cut)


Orders = Mapping[tuple[str, int, str, int], Order]
"""(path and ordinal of a call, ``input`` or ``output``, index of the tensor) -> how it is read there."""

Cuts = Mapping[str, Cut]
"""Path of a parameter -> what is read of it."""


def composed(orders: Orders, further: Orders) -> Orders:
    """Return how tensors are read that are read in one order, and what comes of it in a further one."""
    both = {**orders, **further}
    for place in orders.keys() & further.keys():
        both[place] = orders[place].then(further[place])
    return {place: order for place, order in both.items() if not order.plain}
