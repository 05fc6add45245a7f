"""Hold what the other run has where a value of a job lies: by it one finds how the ranks' parts make a whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import attrs
import numpy as np

from padiff.alignment import orders_between
from padiff.distributed._placements import is_part_of
from padiff.numerics import SAME, Array, difference, epsilon_of
from padiff.trace import Cut, Summary

Shape = tuple[int, ...]
Whole = tuple[Shape, Callable[[], Array | None]]


@attrs.frozen(eq=False)
class Near:
    """How far a value is from the other run's, and the other run's value as it lies here."""

    apart: float
    """The relative L2 difference."""
    value: Array
    rows: bool = False
    """Whether both have one norm, and so may hold the same rows in another order."""

    @property
    def same(self) -> bool:
        """Return whether rounding explains what is between them."""
        return self.apart <= SAME(epsilon_of(self.value.dtype.name) or 0.0)


@attrs.frozen(eq=False)
class Expected:
    """What the other run may hold at a place; several things where it is a job too, and nothing says what of them."""

    wholes: tuple[Whole, ...]
    turned: bool = False
    """Whether its axes may lie in another order there."""
    of: Shape = ()
    """Of a sketch, the shape of what it is one of."""
    padded: tuple[int, int] | None = None
    """Of a job that pads its vocabulary: how many rows it has, and how many of them are real."""

    def fits(self, shape: Shape) -> bool:
        """Return whether a value of a shape may be it."""
        return self._has(shape) or any(self._has(cut.shape(shape)) for cut in self._cuts(shape))

    def _has(self, shape: Shape) -> bool:
        """Return whether one of the wholes is of a shape, in whatever order of axes."""
        return any(True for whole, _ in self.wholes for _ in self._orders(whole, shape))

    def _cuts(self, shape: Shape) -> Iterator[Cut]:
        """Yield what may be the real rows of a value of a shape."""
        if self.padded is not None:
            count, real = self.padded
            yield from (Cut(axis, real, count) for axis, size in enumerate(shape) if size == count)

    def real(self, value: Array) -> Array:
        """Return what of a value the other run may hold, which pads nothing."""
        cuts = () if self._has(value.shape) else self._cuts(value.shape)
        found = next((cut for cut in cuts if self._has(cut.shape(value.shape))), None)
        return value if found is None else found.read(value)

    def nearest(self, value: Array) -> Near | None:
        """Return what of it is nearest to a value."""
        best: Near | None = None
        value = self.real(value)
        norm = None if len(self.wholes) == 1 else _norm(value)
        for shape, read in self.wholes:
            for axes in self._orders(shape, value.shape):
                other = read()
                if other is None:
                    break
                turned = other.transpose(axes)
                with np.errstate(all="ignore"):
                    apart = difference(turned, value)
                rows = norm is not None and math.isclose(
                    norm, _norm(other), rel_tol=SAME(epsilon_of(other.dtype.name) or 0.0)
                )
                found = Near(apart.rel_l2, turned, rows)
                if best is None or math.isnan(best.apart) or (not rows, found.apart) < (not best.rows, best.apart):
                    best = found
        return best

    def _orders(self, whole: Shape, shape: Shape) -> Iterator[tuple[int, ...]]:
        plain = tuple(range(len(shape)))
        if whole == shape:
            yield plain
        if self.turned:
            yield from (axes for axes in orders_between(shape, whole) if axes != plain)


def _norm(value: Array) -> float:
    return float(np.linalg.norm(value.astype(np.float64)))


def expected_sketch(summary: Summary | None) -> Expected | None:
    """Return the sketch that the other run holds at a place."""
    if summary is None or summary.sketch is None:
        return None
    return Expected(((summary.sketch.shape, lambda: summary.sketch),), of=summary.shape)


def shape_left(own: Shape, other: Shape | None) -> Shape:
    """Return the shape of what nobody can put together: the other run's, where ranks may hold shards of that."""
    return other if other is not None and is_part_of(own, other) else own
