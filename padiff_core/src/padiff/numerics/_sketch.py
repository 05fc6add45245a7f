"""Project a value onto a few numbers by random signs: the projections of parts add up to that of the whole.

Every element is added, with a sign, to one of `WIDTH` buckets. Sign and bucket follow from the element's place in the
whole value, laid out flat, and from nothing else: so shards that know where they lie, and summands, make projections
that add up, in any run of any framework. The squares of the buckets add up to the square of the value's norm, but for
a relative error of `SKETCH_ERROR`, and so it is with the difference of two values.

Elements lie in rows of `WIDTH`, a prime, so that what repeats along an axis meets every bucket; `_ROWS` rows are a
block. The signs of a block are independent of each other, and the same in every block but for one more sign for each
bucket, by which the buckets are exchanged too. Hence pairs of elements are independent, sets of four are not quite:
what repeats from block to block to the bit has an error that is larger by the square root of two, which is counted in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from padiff.numerics._dtypes import Array
from padiff.numerics._strips import laid_out

Work = Any
"""The type to compute in: numpy's float32 or float64."""
Indices = Sequence[NDArray[np.int64]]

WIDTH = 151
"""Buckets, at most: of a smaller value one for each element."""
_ROWS = 424
BLOCK = WIDTH * _ROWS
"""Elements that one table of signs serves."""
_LAID_OUT = 4
"""Blocks of the whole that are laid out at once where a part holds short runs of it."""
BATCH = 64
"""Blocks whose exchanges of buckets are drawn at once."""
_SEED = 20260
SKETCH_ERROR = WIDTH**-0.5
"""The standard error of a norm that a projection tells, relative, at most: benchmarks/sketches.py measures 0.06."""


class Sketcher:
    """What projects the elements of one value, block after block."""

    def __init__(self, size: int, work: Work) -> None:
        self._size, self.work = size, work
        self._sums = np.zeros(WIDTH, np.float64)

    @property
    def found(self) -> Array:
        """Return the projection of what was added so far."""
        with np.errstate(over="ignore"):
            return self._sums[: min(WIDTH, self._size)].astype(self.work)

    def add(self, start: int, part: Array) -> None:
        """Add neighbouring elements, the first of which is the ``start``-th of the whole value."""
        for block in range(start // BLOCK, -(-(start + part.size) // BLOCK)):
            first = block * BLOCK - start
            self.add_block(block, part[max(first, 0) : first + BLOCK], max(-first, 0))

    def add_block(self, block: int, part: Array, behind: int = 0) -> None:
        """Add elements of one block, which lie so many elements behind its start."""
        if behind or part.size % WIDTH:
            rows = -(-(behind + part.size) // WIDTH)
            padded = np.zeros(rows * WIDTH, self.work)
            padded[behind : behind + part.size] = part
            part = padded
        table = signs_of(self.work)
        rows = part.size // WIDTH
        sums = np.einsum("rc,rc->c", table[:rows], part.reshape(rows, WIDTH))
        if not math.isfinite(sums.sum()):  # where an element is none, its place counts as zero
            wide = part.astype(np.float64)
            wide[~np.isfinite(wide)] = 0.0
            sums = np.einsum("rc,rc->c", signs_of(np.float64)[:rows], wide.reshape(rows, WIDTH))
        signs, places = exchanges_of(block // BATCH)
        self._sums += signs[block % BATCH] * sums[places[block % BATCH]]


def sketch(array: Array, indices: Indices | None = None, shape: Sequence[int] = ()) -> Array:
    """Return the projection of an array, or of a part of a value of a ``shape``.

    ``indices`` says for each axis which places of the whole the part holds. What is not finite counts as zero.
    """
    if array.dtype.kind == "c":
        pairs = np.ascontiguousarray(array)[..., None].view(array.real.dtype)
        both = np.arange(2)
        return sketch(pairs, None if indices is None else [*indices, both], (*shape, 2))
    found = Sketcher(array.size if indices is None else int(np.prod(shape, dtype=np.int64)), work_of(array.dtype))
    flat = laid_out(array).reshape(-1)
    if indices is None:
        for start in range(0, flat.size, BLOCK):
            found.add_block(start // BLOCK, _converted(flat[start : start + BLOCK], found))
        return found.found
    starts, run = _runs(indices, shape)
    rows = flat.reshape(-1, run) if flat.size else flat.reshape(0, 1)
    if 4 * run > BLOCK:
        for start, row in zip(starts, rows, strict=True):
            found.add(int(start), _converted(row, found))
        return found.found
    _scattered(found, starts, rows)
    return found.found


def _scattered(found: Sketcher, starts: NDArray[np.int64], rows: Array) -> None:
    """Add short runs of elements: those of a few blocks are laid out as they lie in the whole."""
    run, done = rows.shape[1], 0
    room = np.zeros(_LAID_OUT * BLOCK, found.work)
    while done < len(starts):
        block = int(starts[done]) // BLOCK
        last = int(np.searchsorted(starts, block * BLOCK + room.size - run, side="right"))
        room[:] = 0
        sliding_window_view(room, run, writeable=True)[starts[done:last] - block * BLOCK] = rows[done:last]
        for index in range(-(-(int(starts[last - 1]) - block * BLOCK + run) // BLOCK)):
            found.add_block(block + index, room[index * BLOCK : (index + 1) * BLOCK])
        done = last


def work_of(dtype: np.dtype[Any]) -> Work:
    """Return the type to compute in: of small floats float32, of all others float64."""
    return np.float32 if dtype == np.float32 or (dtype.itemsize <= 2 and dtype.kind not in "biu") else np.float64


def _converted(part: Array, found: Sketcher) -> Array:
    return part.astype(found.work, copy=False)


def _runs(indices: Indices, shape: Sequence[int]) -> tuple[NDArray[np.int64], int]:
    """Return where runs of neighbouring elements start in the whole, laid out flat, and how long each is."""
    run, pitch = 1, 1
    axis = len(shape) - 1
    while axis >= 0 and len(indices[axis]) == shape[axis]:  # the axis is there as a whole
        run, pitch, axis = run * shape[axis], pitch * shape[axis], axis - 1
    starts = np.zeros(1, np.int64)
    if axis >= 0:
        places = indices[axis]
        breaks = np.flatnonzero(np.diff(places) != 1) + 1
        lengths = set(np.diff([0, *breaks, len(places)]))
        length = max(int(lengths.pop()), 1) if len(lengths) == 1 else 1
        starts, run = places[::length] * pitch, run * length
        pitch *= shape[axis]
    for above in range(axis - 1, -1, -1):
        starts = (indices[above][:, None] * pitch + starts[None, :]).reshape(-1)
        pitch *= shape[above]
    return starts, run


@lru_cache(maxsize=2)
def signs_of(work: Work) -> Array:
    """Return the signs of the elements of a block."""
    bits = np.random.PCG64(_SEED).random_raw(BLOCK) >> np.uint64(63)
    signs: Array = 1 - 2 * bits.astype(work)
    return signs.reshape(_ROWS, WIDTH)


@lru_cache(maxsize=64)
def exchanges_of(batch: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return of a batch of blocks the sign of each bucket, and which of a block's sums comes to it."""
    raw = np.random.PCG64([_SEED, batch]).random_raw(BATCH * (WIDTH + 2)).reshape(BATCH, WIDTH + 2)
    signs = 1 - 2 * (raw[:, :WIDTH] >> np.uint64(63)).astype(np.float64)
    turns = (raw[:, WIDTH:] >> np.uint64(32)).astype(np.int64)
    places = (np.arange(WIDTH) * (1 + turns[:, :1] % (WIDTH - 1)) + turns[:, 1:] % WIDTH) % WIDTH
    if not batch:
        places[0] = np.arange(WIDTH)  # so that a small value needs no more buckets than it has elements
    return signs, places
