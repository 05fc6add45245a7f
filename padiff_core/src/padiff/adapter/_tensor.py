"""Wrap native tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from padiff.adapter._info import offered_not
from padiff.adapter._listening import Hook
from padiff.adapter._memory import Extent, extent_of, fitted, shares_elements
from padiff.adapter._reduction import Reducer, Reduction
from padiff.errors import NotOffered
from padiff.numerics import Array


class Tensor(ABC):
    """A native tensor, wrapped; cheap to make, holds nothing but the native object.

    What is not abstract needs to be overridden for a capability only: ``device`` for ``devices``, ``version`` and
    ``writable`` for ``in-place``, ``differentiable`` and ``on_gradient`` for ``gradients``.
    """

    __slots__ = ("native",)

    def __init__(self, native: Any) -> None:
        self.native = native

    @property
    def identity(self) -> Any:
        """Return an object that lives as long as the native tensor, and is the same one for the same tensor.

        That is the native tensor itself, unless it lies in another process.
        """
        return self.native

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name: float32, bfloat16, int64, bool, float8_e4m3fn."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""

    @property
    def added(self) -> Any | None:
        """Return the native tensor that the code around is still to add, and that the values read here hold already.

        Such is the bias of a layer that hands it on beside its output.
        """
        return None

    @property
    def device(self) -> str:
        """Return where it lies: ``cpu``, ``cuda:0``, ``npu:1``."""
        return "cpu"

    @property
    def place(self) -> Any:
        """Return where it lies, and how its elements do there if that may choose a kernel: see `Adapter.placed`."""
        return self.device

    @property
    def version(self) -> int:
        """Return a number that grows with every in-place change."""
        return 0

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it (and `on_gradient` can be called)."""
        return False

    @abstractmethod
    def numpy(self) -> Array:
        """Return a snapshot that later in-place changes do not touch: one copy, in the tensor's own dtype."""

    def view(self) -> Array:
        """Return the values without a copy where possible; read at once, never write or keep."""
        return self.numpy()

    def read(self, function: Callable[..., Any], *arrays: Array) -> Any:
        """Return ``function(*arrays, values)``, computed in the tensor's own process: a function of padiff or numpy."""
        return function(*arrays, self.view())

    def reduce(self, reducer: Reducer, reduction: Reduction, *, steady: bool = False) -> bool:
        """Let few numbers be computed where the value lies, as `Reducer.add` says."""
        return False

    def writable(self) -> Array | None:
        """Return an array over the tensor's own memory: writing to it changes the tensor, unseen by autograd.

        None where there is no such thing (the tensor is not on the host, or cannot be changed).
        """
        return None

    def extent(self) -> Extent | None:
        """Return the addresses of the memory that `overwrite` would write to, in the tensor's own process."""
        return extent_of(self.writable())

    def overwrite(self, array: Array) -> bool:
        """Write an array into the tensor's own memory; return False where there is none or elements share bytes."""
        target = self.writable()
        if target is None or not target.size or shares_elements(target):
            return False
        np.copyto(target, array, casting="unsafe")
        return True

    def fitting(self, array: Array) -> Array:
        """Return an array in the tensor's dtype; raises ``ValueError`` for another shape, which is never bent."""
        return fitted(array, self.shape, self.dtype, "a tensor")

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back in the backward pass with the complete gradient; a returned native value replaces it."""
        raise NotOffered(offered_not("a tensor was asked for its gradient", "gradients"))

    @abstractmethod
    def swapped(self, array: Array) -> Any:
        """Return a native tensor with exactly the array's bits; gradients pass through to this one unchanged.

        ``array`` has this tensor's shape; it is converted to this tensor's dtype and device, and copied, so
        that an in-place change by the model never reaches it. Where this tensor is not differentiable,
        neither is the result.
        """
