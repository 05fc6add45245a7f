"""Describe to the parent what a worker's model takes and gives: tensors by number, containers by their leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Adapter
from padiff.isolation._channel import Channel
from padiff.isolation._pins import Pins
from padiff.isolation._shown import PLAIN, is_plain
from padiff.isolation._wire import INLINE
from padiff.numerics import numpy_dtype
from padiff.pytree import leaves, map_leaves
from padiff.trace import Slot

__all__ = ["Sight"]


class Sight:
    """Number and describe values; a tensor's own values go along when the parent has not seen them yet."""

    def __init__(self, adapter: Adapter, pins: Pins) -> None:
        self.adapter = adapter
        self.pins = pins
        self.wants: Callable[..., Any] | None = np.asarray
        """What goes along of large tensors; of small ones it is the values."""
        self.read: NDArray[Any] | None = None
        """The array that the parent last had compared with a tensor, until it is told of something else."""
        self._seen: dict[int, int] = {}

    def forget(self) -> None:
        """Take every tensor for one that the parent has not seen: a run begins or ends."""
        self.wants = np.asarray
        self.read = None
        self._seen.clear()
        self.pins.forget_kept()

    def tensor(self, native: Any, *, eager: bool = True) -> tuple[Any, ...]:
        """Describe a tensor; ``eager`` sends its values along where they are new."""
        tensor = self.adapter.tensor(native)
        number, version = self.pins.send(native, keep=True), tensor.version
        new = self._seen.get(number) != version
        self._seen[number] = version
        about = tensor.dtype, tensor.shape, tensor.device, version, tensor.differentiable, tensor.extent()
        small = math.prod(about[1]) * numpy_dtype(about[0]).itemsize <= INLINE
        told = None
        if eager and new and (small or self.wants is np.asarray):
            told = "values", tensor.view()
        elif eager and new and self.wants is not None:
            told = "wanted", tensor.read(self.wants)
        return number, *about, told

    def told(self, channel: Channel, callback: int, *arguments: Any) -> Any:
        """Call the parent back."""
        try:
            return channel.request("callback", callback, *arguments)
        finally:
            self.read = None

    def value(
        self, value: Any, *, lasting: bool = False, eager: bool = True, by_value: bool = False
    ) -> tuple[Any, ...]:
        """Describe any value.

        ``lasting`` keeps of a container only its shape, for the parent to fill again; ``by_value`` sends ranges,
        tuples and lists of plain data as they are, and not as objects that stay here.
        """
        if self.adapter.is_tensor(value):
            return "tensor", self.tensor(value, eager=eager)
        if type(value) in PLAIN or (by_value and is_plain(value)):
            return "plain", value
        found = list(leaves(value, self.adapter.is_tensor))
        if not found:
            return "object", self.object(value)
        if lasting:
            slots = iter(range(len(found)))
            value = map_leaves(value, self.adapter.is_tensor, lambda *_: Slot(next(slots)))
        about = [(path, self.tensor(native, eager=eager)) for path, native in found]
        return "nested", self.pins.send(value), about

    def object(self, value: Any) -> tuple[int, str, str]:
        """Number an object that stays here; tell its class."""
        return self.pins.send(value), type(value).__module__, type(value).__qualname__

    def filled(self, number: int, items: list[Any]) -> Any:
        """Return the container of a number with other leaves."""
        left: Iterator[Any] = iter(items)

        def wanted(value: Any) -> bool:
            return isinstance(value, Slot) or self.adapter.is_tensor(value)

        return map_leaves(self.pins.get(number), wanted, lambda *_: next(left))
