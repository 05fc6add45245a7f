"""Put recorded values into a running model's tensors, without touching what must not change."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Tensor

__all__ = ["Memory"]

Array = NDArray[Any]


class Memory:
    """Overwrite tensors in place where that is safe.

    Overwriting costs no allocation, adds nothing to the graph of gradients, and reaches every later use of the
    tensor, so that a difference is seen once, where it arises. It is not safe where the bytes also belong to a
    parameter or to another tensor that was given its value already (a view), or where elements share bytes
    (broadcasts).
    """

    def __init__(self, protected: Iterable[Array]) -> None:
        spans = sorted(span(array) for array in protected if array.nbytes)
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]
        self._given: dict[int, tuple[Callable[[], Any], int, int]] = {}

    def overwrite(self, tensor: Tensor, values: Array) -> bool:
        """Write values into the tensor's memory; return False, and write nothing, where that is not safe."""
        target = tensor.writable()
        if target is None or not target.size or 0 in _used_strides(target):
            return False
        start, end = span(target)
        if self._is_protected(start, end) or self._is_given(start, end, tensor.native):
            return False
        np.copyto(target, values, casting="unsafe")
        return True

    def give(self, tensor: Tensor) -> None:
        """Remember that a tensor now holds what it should, so that nothing else is written over it."""
        target = tensor.writable()
        if target is None or not target.size:
            return
        try:
            alive: Callable[[], Any] = weakref.ref(tensor.native)
        except TypeError:
            return
        self._given[id(tensor.native)] = (alive, *span(target))

    def _is_protected(self, start: int, end: int) -> bool:
        index = bisect_right(self._starts, end - 1) - 1
        return index >= 0 and self._ends[index] > start

    def _is_given(self, start: int, end: int, native: Any) -> bool:
        dead = []
        hit = False
        for key, (alive, first, last) in self._given.items():
            owner = alive()
            if owner is None:
                dead.append(key)
            elif first < end and start < last and owner is not native:
                hit = True
        for key in dead:
            del self._given[key]
        return hit


def span(array: Array) -> tuple[int, int]:
    """Return the first and the past-last byte address that an array's elements reach."""
    start = end = int(array.__array_interface__["data"][0])
    for size, stride in zip(array.shape, array.strides, strict=True):
        reach = (size - 1) * stride
        if reach < 0:
            start += reach
        else:
            end += reach
    return start, end + array.itemsize


def _used_strides(array: Array) -> list[int]:
    return [stride for size, stride in zip(array.shape, array.strides, strict=True) if size > 1]
