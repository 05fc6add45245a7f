"""Which bytes of this process's memory an array reaches, and whether its values fit elsewhere."""

from __future__ import annotations

import numpy as np

from padiff.numerics import Array, numpy_dtype

Extent = tuple[int, int]
"""The first and the past-last address."""


def extent_of(array: Array | None) -> Extent | None:
    """Return the addresses that an array's elements reach; None where there are none."""
    if array is None or not array.size:
        return None
    start = end = int(array.__array_interface__["data"][0])
    for size, stride in zip(array.shape, array.strides, strict=True):
        reach = (size - 1) * stride
        if reach < 0:
            start += reach
        else:
            end += reach
    return start, end + array.itemsize


def shares_elements(array: Array) -> bool:
    """Return whether several elements lie in the same bytes, as in a broadcast."""
    return any(stride == 0 for size, stride in zip(array.shape, array.strides, strict=True) if size > 1)


def fitted(array: Array, shape: tuple[int, ...], dtype: str, name: str) -> Array:
    """Return an array in a dtype of that name, a copy only if needed; raises ``ValueError`` where the shapes differ."""
    if array.shape != shape:
        msg = f"an array of shape {array.shape} does not fit {name} of shape {shape}"
        raise ValueError(msg)
    wanted = numpy_dtype(dtype)
    if array.dtype == wanted:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(wanted, copy=False)
