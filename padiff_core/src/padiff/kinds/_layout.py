"""Where a role's values lie in a native parameter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import attrs
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def interleaved(sizes: Sequence[int], groups: int) -> list[tuple[tuple[int, int], ...]]:
    """Return where the rows of layers lie that one weight holds group by group (head by head), as ranges.

    ``sizes`` are the rows of each layer in one group, in the order in which they lie there.
    """
    starts = list(itertools.accumulate(sizes, initial=0))
    return [
        tuple((group * starts[-1] + start, group * starts[-1] + start + size) for group in range(groups))
        for start, size in zip(starts, sizes, strict=False)
    ]


@attrs.frozen
class Part:
    """Where a role's values lie in a native parameter.

    ``parameter`` is a dotted name below the module. The canonical array is the native one, or where it stacks several
    (experts, layers) the one ``at`` this place of some axes, with so many others ``ahead`` of these, without its axis
    ``squeeze`` (of length one), its axes in an ``order`` (heads, in, size, of which the first and the last are joined
    next), neighbouring axes joined as ``merge`` counts them (``(1, 2)`` makes (in, heads * size)
    of (in, heads, size); ``(0,)`` makes one axis of length one of a scalar), the axes ``flip`` turned round, all axes
    permuted by ``transpose`` (numpy's convention), of that the ``piece``
    ``(index, count)`` along the first axis, of that the ``rows``, ranges ``(start, stop)`` joined in the given order
    (where the core splits a packed layer; with ``along`` they are columns; of the second axis only the ``columns`` from
    a start to a stop), of that the equal ``blocks`` along the
    first axis in the
    given order (``blocks[i]`` is the native block that is canonical block ``i``; for gates that a framework orders
    differently). Of complex numbers that are read as real ones the ``numbers`` come first: their ``real`` or ``imag``
    parts, or both in ``pairs``, along a further axis behind all others.
    """

    parameter: str
    transpose: tuple[int, ...] | None = None
    piece: tuple[int, int] | None = None
    blocks: tuple[int, ...] | None = None
    squeeze: int | None = None
    rows: tuple[tuple[int, int], ...] | None = None
    merge: tuple[int, ...] | None = None
    flip: tuple[int, ...] = ()
    at: tuple[int, ...] | None = None
    ahead: int = 0
    along: int = 0
    numbers: Literal["pairs", "real", "imag"] | None = None
    columns: tuple[int, int] | None = None
    order: tuple[int, ...] | None = None

    @property
    def permuted(self) -> bool:
        """Return whether it is the whole parameter, with its axes in another order at most."""
        changed = any(one is not None for one in (self.squeeze, self.merge, self.blocks, self.order))
        return not (self.partial or changed or self.flip or self.numbers)

    @property
    def partial(self) -> bool:
        """Return whether it is only a part of the parameter."""
        return self.cut or self.at is not None or self.numbers in ("real", "imag")

    @property
    def cut(self) -> bool:
        """Return whether it is only some of the rows or columns that are at a place."""
        return any(one is not None for one in (self.piece, self.rows, self.columns))

    def read(self, native: Array) -> Array:
        """Return the canonical array; a view of ``native`` unless blocks are permuted or several ranges joined."""
        views = self._views(native)
        view = views[0] if len(views) == 1 else np.concatenate(views, self.along)
        if self.blocks is None:
            return view
        return np.concatenate([self._block(view, source) for source in self.blocks])

    def write(self, native: Array, canonical: Array) -> None:
        """Write a canonical array into its place in ``native``, which lies in C order; shapes must agree exactly.

        Raises ``ValueError`` when they do not: a shape is never bent to fit.
        """
        if self.order is not None:  # axes that are joined need not lie beside each other: then they are no view
            view = self._placed(native)
            laid = np.ascontiguousarray(view)
            attrs.evolve(self, at=None, squeeze=None, order=None, numbers=None).write(laid, canonical)
            view[...] = laid
            return
        views, shape = self._views(native), self.shape(native.shape)
        if shape != canonical.shape:
            msg = f"canonical shape {canonical.shape} does not fit {shape} of {self.parameter!r}"
            raise ValueError(msg)
        if self.blocks is not None:
            for target, source in enumerate(self.blocks):
                self._block(views[0], source)[...] = self._block(canonical, target)
            return
        if not self.rows:
            views[0][...] = canonical
            return
        ends = np.cumsum([view.shape[self.along] for view in views])[:-1]
        for view, values in zip(views, np.split(canonical, ends, self.along), strict=True):
            view[...] = values

    def shape(self, native: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the canonical array, of a parameter of some shape."""
        views = self._views(np.broadcast_to(0j, native))
        shape = list(views[0].shape)
        if self.rows:
            shape[self.along] = sum(view.shape[self.along] for view in views)
        return tuple(shape)

    def _placed(self, native: Array) -> Array:
        view = native if self.numbers is None else _numbers(native, self.numbers)
        if self.at is not None:
            place: tuple[Any, ...] = (*[slice(None)] * self.ahead, *self.at)
            view = view[place]
        view = view if self.squeeze is None else view.squeeze(self.squeeze)
        return view if self.order is None else view.transpose(self.order)

    def _views(self, native: Array) -> list[Array]:
        view = self._placed(native)
        view = view if self.merge is None else view.reshape(_merged(view.shape, self.merge))
        view = np.flip(view, self.flip) if self.flip else view
        view = view if self.transpose is None else view.transpose(self.transpose)
        view = view if self.columns is None else view[:, slice(*self.columns)]
        if self.piece is not None:
            index, count = self.piece
            size = view.shape[0] // count
            view = view[index * size : (index + 1) * size]
        if self.rows is None:
            return [view]
        return [view[(*[slice(None)] * self.along, slice(start, stop))] for start, stop in self.rows]

    def _block(self, view: Array, index: int) -> Array:
        size = view.shape[0] // len(self.blocks or ())
        return view[index * size : (index + 1) * size]


def _numbers(native: Array, wanted: str) -> Array:
    """Return the parts of complex numbers, or both in pairs along a further axis: a view of them."""
    if wanted != "pairs":
        return native.real if wanted == "real" else native.imag
    parts = native.real
    return np.lib.stride_tricks.as_strided(parts, (*parts.shape, 2), (*parts.strides, parts.itemsize))


def _merged(shape: tuple[int, ...], counts: tuple[int, ...]) -> list[int]:
    """Return the shape in which so many neighbouring axes are one; an axis made of none has length one."""
    axes = iter(shape)
    return [math.prod(itertools.islice(axes, count)) for count in counts]
