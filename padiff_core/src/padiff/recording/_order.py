"""The order in which a value is read, where the other model holds the same numbers in another one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np

from padiff.errors import PadiffError
from padiff.numerics import Array
from padiff.trace import Cut


@attrs.frozen
class Fold:
    """How many neighbouring axes are one on each side: a map of pixels, or a row of them."""

    native: tuple[int, ...]
    """Of each native axis, how many axes of the side that has more it holds; those of length one count for none."""
    read: tuple[int, ...]
    """Of each axis that is read, how many of these it holds, in its order."""
    sizes: tuple[int, ...] = attrs.field(eq=False)
    """Their lengths, in the native order: the same axes are joined in a map of another size."""

    def native_sizes(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Return the lengths of these axes in an array of a native shape; None where it has none such."""
        return _apart(shape, self.native, self.sizes)

    def read_sizes(self, shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...] | None:
        """Return their lengths, in the order of ``axes``, in an array of the shape that is read."""
        return _apart(shape, self.read, [self.sizes[axis] for axis in axes])


def _apart(shape: Sequence[int], counts: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Return the lengths of so many axes in each of a shape: the first of each may be another than in ``sizes``."""
    found: list[int] = []
    if len(shape) != len(counts):
        return None
    for size, count in zip(shape, counts, strict=True):
        rest = sizes[len(found) + 1 : len(found) + count]
        if size % math.prod(rest) or (not count and size != 1):
            return None
        found += (size // math.prod(rest), *rest)[:count]
    return tuple(found)


def _joined(sizes: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return tuple(math.prod(sizes[end - count : end]) for end, count in zip(ends, counts, strict=True))


@attrs.frozen
class Order:
    """What takes a native array to the other model's order: a permutation of its axes, then of one axis's rows.

    Of what one model pads, the real rows are read, before anything else. Where one model has one axis for several of
    the other's, ``fold`` says which: those are permuted.
    """

    axes: tuple[int, ...]
    """As numpy's transpose takes it."""
    rows: tuple[int, ...] = ()
    """The rows to take, of those along the axis ``along``; none where they are in order."""
    along: int = 0
    cut: Cut | None = None
    """What is read of a value at all; None for all of it."""
    fold: Fold | None = None
    """Which axes are one on one side; None where both have as many."""

    @property
    def plain(self) -> bool:
        """Return whether all is read as it is."""
        return self.cut is None and not self.reorders

    @property
    def reorders(self) -> bool:
        """Return whether axes or rows are permuted, or several are one."""
        orders = self.axes, self.rows
        return self.fold is not None or any(order != tuple(range(len(order))) for order in orders)

    def read(self, array: Array) -> Array:
        """Return a native array in the other model's order; a view where only axes are permuted."""
        found = array if self.cut is None else self.cut.read(array)
        found = found.transpose(self.axes) if self.fold is None else self._folded(self.fold, found)
        # Given other values, a router sends another number of tokens here.
        if self.rows and found.shape[self.along] < len(self.rows):
            msg = f"a value of shape {found.shape} has no {len(self.rows)} rows to be read in another order"
            raise PadiffError(msg)
        return found.take(self.rows, self.along) if self.rows else found

    def natively(self, array: Array) -> Array:
        """Return an array of the other model's order in the native one; what the other lacks is zero."""
        found = array.take(np.argsort(self.rows), self.along) if self.rows else array
        found = found.transpose(np.argsort(self.axes)) if self.fold is None else self._unfolded(self.fold, found)
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
        if self.fold is None:
            return tuple(native[axis] for axis in self.axes)
        sizes = self.fold.native_sizes(native)
        return native if sizes is None else _joined([sizes[axis] for axis in self.axes], self.fold.read)

    def _folded(self, fold: Fold, array: Array) -> Array:
        """Return a native array with its axes as the other has them; one of another shape as it is."""
        sizes = fold.native_sizes(array.shape)
        return array if sizes is None else array.reshape(sizes).transpose(self.axes).reshape(self.shape(array.shape))

    def _unfolded(self, fold: Fold, array: Array) -> Array:
        sizes, back = fold.read_sizes(array.shape, self.axes), np.argsort(self.axes)
        if sizes is None:
            return array
        return array.reshape(sizes).transpose(back).reshape(_joined([sizes[axis] for axis in back], fold.native))

    def then(self, other: Order) -> Order:
        """Return the order that reads in this one, and what comes of it in another; rows along one axis only."""
        counts = [1] * len(self.axes) if self.fold is None else self.fold.read
        starts = [sum(counts[:axis]) for axis in range(len(counts))]
        axes = tuple(self.axes[starts[axis] + i] for axis in other.axes for i in range(counts[axis]))
        fold = self.fold and attrs.evolve(self.fold, read=tuple(counts[axis] for axis in other.axes))
        if not self.rows:
            return Order(axes, other.rows, other.along, self.cut, fold)
        along = other.axes.index(self.along)
        if other.rows and other.along == along:
            return Order(axes, tuple(self.rows[row] for row in other.rows), along, self.cut, fold)
        return Order(axes, self.rows, along, self.cut, fold)


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
