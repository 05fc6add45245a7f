"""Add up squares and scalar products; the norm of an element-wise product, without making that."""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy as np

from padiff.numerics._chunks import chunks
from padiff.numerics._dtypes import Array, work_dtype

_BLOCK = 1 << 13  # elements of one BLAS call


class Squares:
    """Add up scalar products of contiguous vectors: blocks in their own type, sums of blocks in float64.

    BLAS sets threads spinning for products of more than 10000 elements; a stack of short vectors avoids that.
    On x86 OpenBLAS leaves float32 to one thread: there a whole chunk is one block, which is 5 % faster.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._whole = dtype == np.float32 and platform.machine() in ("x86_64", "AMD64")
        self._blocks = np.zeros((0, 1, 1))
        self._rest = 0.0

    def add(self, p: Array, q: Array | None = None) -> None:
        """Add the product of two vectors of one length, or of one with itself."""
        if q is None:
            q = p
        if self._whole or p.size < _BLOCK:
            self._rest += float(p.dot(q))
            return
        rest = p.size % _BLOCK
        if rest:
            self._rest += float(p[-rest:].dot(q[-rest:]))
            p, q = p[:-rest], q[:-rest]
        products = np.matmul(p.reshape(-1, 1, _BLOCK), q.reshape(-1, _BLOCK, 1))
        if len(products) > len(self._blocks):
            self._blocks = np.concatenate([self._blocks, np.zeros_like(products, np.float64)])
        self._blocks[: len(products)] += products

    def total(self) -> float:
        """Return the sum so far."""
        return float(self._blocks.sum()) + self._rest


_CHUNK = 1 << 19
"""Bytes of one operand that stay in the cache."""


def product_norm(one: Array, other: Array) -> float:
    """Return the L2 norm of the element-wise product of two real arrays of one shape; what underflows counts as 0."""
    work = work_dtype(one, other)
    scratch, squares = np.empty(min(one.size, _CHUNK // work.itemsize), work), Squares(work)
    with np.errstate(all="ignore"):
        for p, q in chunks(one, other, (work, work), _CHUNK, order="K"):
            found = scratch[: p.size]
            np.multiply(p, q, found)
            squares.add(found)
    return math.sqrt(squares.total())
