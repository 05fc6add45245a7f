"""Cut two arrays into chunks that stay in the cache, in the type in which they are compared."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Literal, cast

import numpy as np

from padiff.numerics._dtypes import Array
from padiff.numerics._strips import copy_in_tiles, is_crosswise

_ROWS = 256
_BUFFER = 1 << 18
"""Bytes of a buffer, at most: there may be four of them."""


@functools.lru_cache(maxsize=32)
def _table(dtype: np.dtype[Any], work: np.dtype[Any]) -> Array:
    """Return all values of a one- or two-byte type: a look-up is 2 (float16) to 7 (fp8) times as fast."""
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    return bits.view(dtype).astype(work)


def _looked_up(array: Array) -> bool:
    if array.dtype.kind in "biu" or not array.dtype.isnative:
        return False
    # bfloat16's cast is a shift, which no table beats.
    return array.itemsize == 1 or (array.dtype == np.float16 and array.size >= 1 << 16)


def _blocks(
    arrays: tuple[Array, Array], dtypes: tuple[np.dtype[Any], np.dtype[Any]], limit: int
) -> Iterator[tuple[Array, Array]]:
    """Yield two matrices, of which one lies crosswise, in blocks copied to buffers that the next step overwrites."""
    rows, columns = arrays[0].shape
    width = limit // (2 * _ROWS * max(dtype.itemsize for dtype in dtypes))
    buffers = [np.empty(_ROWS * width, dtype) for dtype in dtypes]
    for top in range(0, rows, _ROWS):
        for left in range(0, columns, width):
            done = []
            for array, buffer in zip(arrays, buffers, strict=True):
                block = array[top : top + _ROWS, left : left + width]
                flat = buffer[: block.size]
                if is_crosswise(array):
                    copy_in_tiles(flat.reshape(block.shape), block)
                else:
                    np.copyto(flat.reshape(block.shape), block, casting="unsafe")
                done.append(flat)
            yield done[0], done[1]


def chunks(
    ref: Array,
    cand: Array,
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    limit: int,
    *,
    order: Literal["K", "C"],
) -> Iterator[tuple[Array, Array]]:
    """Yield both arrays in contiguous one-dimensional chunks of the given dtypes, of at most ``limit`` bytes.

    Chunks are views of the arrays where these lie so, else of buffers that the next step overwrites.
    """
    arrays = (np.atleast_1d(ref), np.atleast_1d(cand))
    if order == "K" and is_crosswise(arrays[0]) != is_crosswise(arrays[1]) and not any(map(_looked_up, arrays)):
        yield from _blocks(arrays, dtypes, limit)
        return
    tables = [_table(a.dtype, d) if _looked_up(a) else None for a, d in zip(arrays, dtypes, strict=True)]
    widest = max(dtype.itemsize for dtype in dtypes)
    size = limit // widest
    if any(a.dtype != dtype or not a.flags.forc for a, dtype in zip(arrays, dtypes, strict=True)):
        size = min(limit // 2, _BUFFER) // widest
    # numpy 1.26's stubs misspell "contig".
    flags: Any = ["readonly", "contig", "aligned"]
    iterator = np.nditer(
        arrays,
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_flags=[flags, flags],
        op_dtypes=[a.dtype if t is not None else d for a, t, d in zip(arrays, tables, dtypes, strict=True)],
        order=order,
        casting="unsafe",
        buffersize=size,
    )
    if all(table is None for table in tables):
        yield from cast("Iterator[tuple[Array, Array]]", iterator)
        return
    outs = [np.empty(min(size, ref.size), dtype) for dtype in dtypes]
    for pair in cast("Iterator[tuple[Array, Array]]", iterator):
        done = []
        for chunk, table, out in zip(pair, tables, outs, strict=True):
            if table is None:
                done.append(chunk)
                continue
            bits = chunk.view(f"u{chunk.itemsize}")
            done.append(np.take(table, bits, out=out[: len(chunk)], mode="clip"))
        yield done[0], done[1]
