"""Put recorded values into a running model's tensors, without touching what must not change."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from padiff.adapter import Adapter, Extent, Tensor
from padiff.numerics import Array, numpy_dtype
from padiff.recording import natively


class Spans:
    """Ranges of memory, each with what lies there, found by overlap.

    They are sorted by start within classes of like length, so that a look-up sees few that do not overlap.
    """

    def __init__(self) -> None:
        self._classes: dict[int, list[tuple[int, int, int]]] = {}
        self._held: dict[int, tuple[int, int, Any]] = {}

    def put(self, key: int, start: int, end: int, held: Any) -> None:
        """Say what lies in a range; a range of the same key before is forgotten."""
        self.drop(key)
        self._held[key] = start, end, held
        insort(self._classes.setdefault((end - start).bit_length(), []), (start, end, key))

    def drop(self, key: int) -> None:
        """Forget the range of a key."""
        known = self._held.pop(key, None)
        if known is not None:
            start, end, _ = known
            spans = self._classes[(end - start).bit_length()]
            del spans[bisect_left(spans, (start, end, key))]

    def over(self, start: int, end: int) -> list[tuple[int, Any]]:
        """Return the keys of the ranges that share bytes with this one, with what lies there."""
        found: list[tuple[int, Any]] = []
        for bits, spans in self._classes.items():
            for at in range(bisect_left(spans, (start - (1 << bits), 0, 0)), len(spans)):
                first, last, key = spans[at]
                if first >= end:
                    break
                if last > start:
                    found.append((key, self._held[key][2]))
        return found


class Memory:
    """What overwrites tensors in place where that is safe.

    Overwriting costs no allocation, adds nothing to the graph of gradients, and reaches every later use of the
    tensor, so that a difference is seen once, where it arises. It is not safe where the bytes also belong to a
    parameter or to another tensor that was given its value already (a view), or where elements share bytes
    (broadcasts).
    """

    def __init__(self, protected: Iterable[Extent | None]) -> None:
        spans = sorted(extent for extent in protected if extent is not None)
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]
        self._given = Spans()

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
        self._given.put(id(identity), *extent, alive)

    def is_protected(self, tensor: Tensor) -> bool:
        """Return whether a tensor lies in memory that nothing is to be written to: a parameter, or a view of one."""
        extent = tensor.extent()
        return extent is not None and self._is_protected(*extent)

    def take_back(self, tensor: Tensor) -> None:
        """Forget what was in a tensor's memory before: the model itself has written over it."""
        extent = tensor.extent()
        if extent is not None:
            for key, _ in self._given.over(*extent):
                self._given.drop(key)

    def _is_protected(self, start: int, end: int) -> bool:
        index = bisect_right(self._starts, end - 1) - 1
        return index >= 0 and self._ends[index] > start

    def _is_given(self, start: int, end: int, identity: Any) -> bool:
        owners = [(key, alive()) for key, alive in self._given.over(start, end)]
        for key, owner in owners:
            if owner is None:
                self._given.drop(key)
        return any(owner is not None and owner is not identity for _, owner in owners)


def in_place_of(tensor: Tensor, adapter: Adapter, value: Array, *, graded: bool) -> tuple[Any, tuple[Any, Any]]:
    """Return a value of another shape as a native tensor, and where backward begins that does not come through it.

    That is the tensor in whose place it is, and zeros.
    """
    dtype = numpy_dtype(tensor.dtype)
    zeros, given = (natively(tensor, one) for one in (np.zeros(tensor.shape, dtype), value.astype(dtype)))
    native = adapter.placed(given, tensor.place, differentiable=graded)
    if graded:  # not the leaf itself, which may not be changed in place
        native = adapter.tensor(native).swapped(given)
    return native, (tensor.native, adapter.from_numpy(zeros, device=tensor.device))
