"""Tell where a candidate holds the rows of a value in another order: tokens sorted by expert, a batch sorted by length.

Only whole values tell that. Rows are matched by their values, each with the nearest. A value that a fault has made
another one takes the order of what the same call, or one beside it, took before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from padiff.alignment._pairs import Alignment, Pair
from padiff.numerics import ORDER, ROUNDING, SAME, Array, difference, epsilon_of, in_reals
from padiff.recording import Order, Orders
from padiff.trace import Call, Leaf, Trace

_LARGEST = float(np.finfo(np.float32).max)
_MOST = 2048
"""Rows: each is compared with each."""
_DIRECTIONS = 8
"""Random projections by which rows are compared: as many tell rows apart that differ in one element."""
_LOOKED_AT = 8
"""Values that are looked at for the numbers of the reference."""
Beside = tuple[Array | None, Array | None]
_MOST_AXES = 5
"""Axes along which a value may have the channels of a parameter whose rows are in another order."""
_FLAT = 2
"""Axes of a value of which the second is no axis of rows: (tokens, features)."""


def may_be_permuted(alignment: Alignment, reference: Trace, candidate: Trace, weighs_alike: Callable[[], bool]) -> bool:
    """Return whether a value of the free runs may be the reference's, permuted.

    The numbers that are known of it are among the reference's; or it is so far from it that it is another one, where
    both models hold the same weights: with others all that comes of them is another one.
    """
    looked = 0
    for _, _, _, ours, theirs in _values(alignment):
        mine, yours = reference.samples.get(ours.token), candidate.samples.get(theirs.token)
        if mine is None or yours is None or ours.shape != theirs.shape or max(ours.shape, default=0) < _FLAT:
            continue
        apart = difference(mine, yours).rel_l2
        if apart > ORDER(0.0) and weighs_alike():
            return True
        if apart > SAME(epsilon_of(ours.dtype, theirs.dtype)) and looked < _LOOKED_AT:
            looked += 1
            whole = reference.value(ours)
            if whole is not None and _are_among(yours, whole, epsilon_of(ours.dtype, theirs.dtype)):
                return True
    return False


def _are_among(numbers: Array, whole: Array, eps: float) -> bool:
    """Return whether each number is one of an array's, but for rounding."""
    known = np.sort(in_reals(whole), axis=None)
    after = np.searchsorted(known, numbers).clip(1, known.size - 1)
    nearest = np.minimum(np.abs(known[after] - numbers), np.abs(known[after - 1] - numbers))
    return bool((nearest <= ROUNDING(eps) * np.sqrt(np.mean(np.square(known)))).all())


def row_orders(alignment: Alignment, reference: Trace, candidate: Trace, known: Iterable[tuple[int, ...]]) -> Orders:
    """Return how the candidate's values are read whose rows are in another order; it was recorded with its values.

    The orders of parameters' rows are ``known``: what these make may be in one of them, along whatever axis.
    """
    found: dict[tuple[str, int, str, int], Order] = {}
    rows = _Rows(known=known)
    root = alignment.pairs[0]
    for pair, what, index, ours, theirs in _values(alignment):
        mine, yours = reference.value(ours), candidate.value(theirs)
        if mine is None or yours is None or mine.shape != yours.shape or not mine.size or not mine.ndim:
            continue
        made = pair is root and what == "output"  # by a whole model, in the order in which it takes its inputs
        given = {one.rows for place, one in found.items() if place[:2] == root.key} if made else set()
        if made and not given:
            continue
        order = rows.order(pair.candidate, mine, yours, SAME(epsilon_of(ours.dtype, theirs.dtype)))
        if order is not None and (not made or order.rows in given):
            found[*pair.key, what, index] = order
    return found


def recorded_row_orders(
    alignment: Alignment, reference: Trace, candidate: Trace, known: Iterable[tuple[int, ...]]
) -> Orders:
    """Return how the candidate's values are read whose rows are in another order, in two recorded runs.

    Nothing can be fed to bear it out. So an order counts where the rows themselves are the same, and where a call takes
    values in it and gives them in it: what takes rows in one order and gives them in another did that itself.
    """
    found: dict[tuple[str, int, str, int], Order] = {}
    rows = _Rows(exact=True, known=known)
    for pair, what, index, ours, theirs in _values(alignment):
        few, fewer = reference.samples.get(ours.token), candidate.samples.get(theirs.token)
        eps = epsilon_of(ours.dtype, theirs.dtype)
        if ours.shape != theirs.shape or not ours.shape or few is None or fewer is None:
            continue
        if difference(few, fewer).rel_l2 <= SAME(eps):
            rows.note(pair.candidate, ours.shape)
            continue
        mine, yours = reference.value(ours), candidate.value(theirs)
        if mine is None or yours is None:
            continue
        beside = reference.gradient(ours), candidate.gradient(theirs)
        order = rows.order(pair.candidate, mine, yours, SAME(eps), beside)
        if order is not None:
            found[*pair.key, what, index] = order
    both: dict[tuple[str, int], dict[tuple[int, ...], set[str]]] = {}
    for (path, ordinal, what, _), order in found.items():
        both.setdefault((path, ordinal), {}).setdefault(order.rows, set()).add(what)
    return {place: order for place, order in found.items() if len(both[place[:2]][order.rows]) == len(("in", "out"))}


def _values(alignment: Alignment) -> Iterator[tuple[Pair, str, int, Leaf, Leaf]]:
    return ((pair, *found) for pair in alignment.pairs for found in pair.tensors)


class _Rows:
    """The orders of rows that were found so far: None where they are the reference's.

    Where they are to be ``exact``, rows are matched that are the same as a whole, in whatever order.
    """

    def __init__(self, *, known: Iterable[tuple[int, ...]], exact: bool = False) -> None:
        self._exact = exact
        self._known: dict[Order, None] = {
            Order((), order, along): None
            for rows in known
            for order in orders_within(rows)
            for along in range(_MOST_AXES)
        }
        self._last: dict[tuple[Call | None, int], Order | None] = {}
        """(a call, or the one around it, and how many rows) -> the order that was found last."""

    def order(self, call: Call, ours: Array, theirs: Array, same: float, beside: Beside = (None, None)) -> Order | None:
        """Return the order in which a value of a call is to be read, or None for its own.

        What is ``beside`` both, their gradients, tells rows apart that are the same.
        """
        plain = difference(ours, theirs).rel_l2
        near = self._near(call, ours)
        order = None
        if near is not None and self._exact and difference(ours, near.read(theirs)).rel_l2 <= same:
            order = near
        elif plain > same or near is not None:
            fits = [(difference(ours, one.read(theirs)).rel_l2, one) for one in self._fitting(ours)]
            best = min(fits, key=lambda found: (found[0], found[1] != near), default=(plain, None))
            if best[0] > same and not (self._exact and _norms_differ(ours, theirs, same)):
                fresh = [(difference(ours, one.read(theirs)).rel_l2, one) for one in _matched(ours, theirs, beside)]
                best = min([best, *fresh], key=lambda found: found[0])
            order = self._chosen(call, ours, theirs, same, plain, *best)
        if order is not None:
            self._known[order] = None
        self.note(call, ours.shape, order)
        return order

    def note(self, call: Call, shape: tuple[int, ...], order: Order | None = None) -> None:
        """Know in which order a value of a call is: where none is given in the reference's."""
        for owner in (call, call.parent):
            for count in shape[:_FLAT]:
                self._last[owner, count] = order

    def _chosen(
        self, call: Call, ours: Array, theirs: Array, same: float, plain: float, error: float, best: Order | None
    ) -> Order | None:
        """Choose: what is the same; else what is near, where no other is far better; else what is far better."""
        near = self._near(call, ours)
        if error <= same:
            return best
        if plain <= same:
            return None
        if near is None:
            return None if (call, ours.shape[0]) in self._last or error > ORDER(0.0) * min(1.0, plain) else best
        far = difference(ours, near.read(theirs)).rel_l2
        if error <= ORDER(0.0) * min(far, plain):
            return best
        return None if plain <= ORDER(0.0) * far else near

    def _near(self, call: Call, ours: Array) -> Order | None:
        """Return the order of what the same call took, or one beside it, if it fits."""
        count = ours.shape[0] if ours.ndim else 0
        for owner in (call, call.parent):
            if (owner, count) in self._last:
                near = self._last[owner, count]
                order = None if near is None else Order(tuple(range(ours.ndim)), near.rows, near.along)
                return order if order in self._fitting(ours) else None
        return None

    def _fitting(self, ours: Array) -> list[Order]:
        """Return the orders of as many rows, of values with any number of axes."""
        axes = tuple(range(ours.ndim))
        return [
            Order(axes, rows, along)
            for rows, along in {(order.rows, order.along): None for order in self._known}
            if along < ours.ndim and ours.shape[along] == len(rows)
        ]


def orders_within(rows: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield an order of channels, and those of the parts that code cuts them into: of heads, and within each."""
    yield rows
    for size in (size for size in range(2, len(rows)) if not len(rows) % size):
        parts = np.reshape(rows, (-1, size))
        firsts = parts.min(axis=1, keepdims=True)
        inner = parts - firsts
        if (inner == inner[0]).all() and inner.max() < size:
            orders = tuple(inner[0].tolist()), tuple((firsts[:, 0] // size).tolist())
            yield from (order for order in orders if order != tuple(range(len(order))))


def _norms_differ(ours: Array, theirs: Array, same: float) -> bool:
    """Return whether two values cannot hold the same rows, in whatever order."""
    norms = [float(np.linalg.norm(in_reals(one))) for one in (ours, theirs)]
    return not abs(norms[0] - norms[1]) <= same * max(norms)


def _matched(ours: Array, theirs: Array, beside: Beside) -> Iterator[Order]:
    """Yield orders of rows along the first axis, and along the second where that holds rows too."""
    for along in range(2 if ours.ndim == _FLAT + 1 else 1):
        count = ours.shape[along] if ours.ndim else 0
        if not 1 < count <= _MOST:
            continue
        rows = _nearest(_rows_of(ours, along), _rows_of(theirs, along), _beside(beside, ours.shape, along))
        if rows != tuple(range(count)):
            yield Order(tuple(range(ours.ndim)), rows, along)


def _rows_of(array: Array, along: int) -> Array:
    return in_reals(np.moveaxis(array, along, 0)).reshape(array.shape[along], -1)


def _beside(beside: Beside, shape: tuple[int, ...], along: int) -> tuple[Array, Array] | None:
    """Return the rows of what is beside two values of a shape, where both have it."""
    ours, theirs = beside
    if ours is None or theirs is None or ours.shape != shape or theirs.shape != shape:
        return None
    return _rows_of(ours, along), _rows_of(theirs, along)


def _nearest(ours: Array, theirs: Array, beside: tuple[Array, Array] | None) -> tuple[int, ...]:
    """Return, for each row, the row of the other array that is nearest and not taken.

    Of equal ones the one that is nearest in what is beside it, else the first.
    """
    directions = np.random.default_rng(0).standard_normal((ours.shape[1], _DIRECTIONS))
    # Infinities are taken for the largest float32: products and norms of float64 cannot overflow then.
    mine, yours = (np.nan_to_num(np.clip(one, -_LARGEST, _LARGEST)) @ directions for one in (ours, theirs))
    free = np.ones(len(yours), bool)
    found = []
    bound = SAME(epsilon_of("float32")) * float(np.linalg.norm(mine)) / len(mine)
    for index, row in enumerate(mine):
        distances = np.where(free, np.linalg.norm(yours - row, axis=1), np.inf)
        equal = np.flatnonzero(distances <= distances.min() + bound)
        best = int(equal[0])
        if beside is not None and len(equal) > 1:
            apart = np.linalg.norm(beside[1][equal] - beside[0][index], axis=1)
            size = max(float(np.linalg.norm(one)) for one in beside) / len(mine)
            best = int(equal[np.argmin(apart)]) if apart.min() <= SAME(epsilon_of("float32")) * size else best
        free[best] = False
        found.append(best)
    return tuple(found)
