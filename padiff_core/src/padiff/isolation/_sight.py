"""Describe to the parent what a worker's model takes and gives: tensors by number, containers by their leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from padiff.adapter import Adapter
from padiff.isolation._pins import Pins
from padiff.isolation._shown import PLAIN
from padiff.trace import Slot
from padiff.tree import leaves, map_leaves

__all__ = ["Sight"]


class Sight:
    """Number and describe values; a tensor's own values go along when the parent has not seen them yet."""

    def __init__(self, adapter: Adapter, pins: Pins) -> None:
        self.adapter = adapter
        self.pins = pins
        self._seen: dict[int, int] = {}

    def forget(self) -> None:
        """Take every tensor for one that the parent has not seen: a run begins or ends."""
        self._seen.clear()
        self.pins.forget_kept()

    def tensor(self, native: Any, *, eager: bool = True) -> tuple[Any, ...]:
        """Describe a tensor; ``eager`` sends its values along where they are new."""
        tensor = self.adapter.tensor(native)
        number, version = self.pins.send(native, keep=True), tensor.version
        new = self._seen.get(number) != version
        self._seen[number] = version
        values = tensor.view() if eager and new else None
        about = tensor.dtype, tensor.shape, tensor.device, version, tensor.differentiable, tensor.extent()
        return number, *about, values

    def value(self, value: Any, *, lasting: bool = False, eager: bool = True) -> tuple[Any, ...]:
        """Describe any value; ``lasting`` keeps of a container only its shape, for the parent to fill again."""
        if self.adapter.is_tensor(value):
            return "tensor", self.tensor(value, eager=eager)
        if type(value) in PLAIN:
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
