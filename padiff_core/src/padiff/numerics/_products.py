"""Measure the element-wise product of two arrays without making it."""

from __future__ import annotations

import math

import numpy as np

from padiff.numerics._chunks import chunks
from padiff.numerics._dtypes import Array, work_dtype
from padiff.numerics._squares import Squares

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
