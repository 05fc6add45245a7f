"""Which bytes of this process's memory an array reaches, and whether its values fit elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

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


class _Memory:
    """Memory that a framework owns, as numpy takes it: it keeps the ``owner`` while it looks there."""

    def __init__(self, owner: Any, **interface: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, **interface}


def array_at(
    owner: Any,
    address: int,
    dtype: np.dtype[Any],
    shape: Iterable[int],
    strides: Iterable[int] | None = None,
    *,
    writable: bool = True,
) -> Array:
    """Return an array over memory that a framework owns, never copied; ``owner`` lives as long as the array.

    ``strides`` are in elements; without them these lie in C order.
    """
    steps = None if strides is None else tuple([dtype.itemsize * stride for stride in strides])
    data = (address, not writable)
    array = np.asarray(_Memory(owner, data=data, shape=tuple(shape), strides=steps, typestr=_typestr(dtype)))
    return array if array.dtype is dtype else array.view(dtype)


@cache
def _typestr(dtype: np.dtype[Any]) -> str:
    """Return a dtype as the array interface spells it; what numpy does not know is raw bytes there."""
    return dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}"


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
