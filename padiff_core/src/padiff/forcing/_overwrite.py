"""Put recorded values into a running model's tensors, without touching what must not change."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from numpy.typing import NDArray

from padiff.adapter import Extent, Tensor

__all__ = ["Memory"]

Array = NDArray[Any]


class Memory:
    """Overwrite tensors in place where that is safe.

    Overwriting costs no allocation, adds nothing to the graph of gradients, and reaches every later use of the
    tensor, so that a difference is seen once, where it arises. It is not safe where the bytes also belong to a
    parameter or to another tensor that was given its value already (a view), or where elements share bytes
    (broadcasts).
    """

    def __init__(self, protected: Iterable[Extent | None]) -> None:
        spans = sorted(extent for extent in protected if extent is not None)
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]
        self._given: dict[int, tuple[Callable[[], Any], int, int]] = {}

    def overwrite(self, tensor: Tensor, values: Array) -> bool:
        """Write values into the tensor's memory; return False, and write nothing, where that is not safe."""
        extent = tensor.extent()
        if extent is None or self._is_protected(*extent) or self._is_given(*extent, tensor.identity):
            return False
        return tensor.overwrite(values)

    def give(self, tensor: Tensor) -> None:
        """Remember that a tensor now holds what it should, so that nothing else is written over it."""
        extent, identity = tensor.extent(), tensor.identity
        if extent is None:
            return
        try:
            alive: Callable[[], Any] = weakref.ref(identity)
        except TypeError:
            return
        self._given[id(identity)] = (alive, *extent)

    def is_protected(self, tensor: Tensor) -> bool:
        """Return whether a tensor lies in memory that nothing is to be written to: a parameter, or a view of one."""
        extent = tensor.extent()
        return extent is not None and self._is_protected(*extent)

    def take_back(self, tensor: Tensor) -> None:
        """Forget what was in a tensor's memory before: the model itself has written over it."""
        extent = tensor.extent()
        if extent is not None:
            start, end = extent
            self._given = {key: row for key, row in self._given.items() if row[2] <= start or row[1] >= end}

    def _is_protected(self, start: int, end: int) -> bool:
        index = bisect_right(self._starts, end - 1) - 1
        return index >= 0 and self._ends[index] > start

    def _is_given(self, start: int, end: int, identity: Any) -> bool:
        dead = []
        hit = False
        for key, (alive, first, last) in self._given.items():
            owner = alive()
            if owner is None:
                dead.append(key)
            elif first < end and start < last and owner is not identity:
                hit = True
        for key in dead:
            del self._given[key]
        return hit
