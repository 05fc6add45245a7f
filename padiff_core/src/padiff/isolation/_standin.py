"""Stand in this process for objects of a worker: equal numbers, one stand-in; the last one gone, the object may go."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from padiff.adapter import Extent
from padiff.isolation._wire import marker
from padiff.pytree import Nested

if TYPE_CHECKING:
    from padiff.isolation._session import Session

__all__ = ["Container", "Identity", "StandIn", "TensorStandIn", "class_named", "reduced"]

_native = marker("_native")
_nested = marker("_nested")


class StandIn:
    """Stand for one object; its class is named as the object's is. Of a module it gives the children as attributes."""

    __slots__ = ("__weakref__", "_count", "_number", "_session")

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self._number = number
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        """Return the stand-in of what hangs at the object under a name."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self._session.object(self._session.request("child", self, name))

    def __del__(self) -> None:
        """Let the object go."""
        self._session.dropped.append((self._number, self._count))


class Identity:
    """Live as long as a tensor in the worker."""

    __slots__ = ("__weakref__",)


class TensorStandIn(StandIn):
    """Stand for a tensor, as it was when it was last heard of."""

    __slots__ = ("device", "differentiable", "dtype", "extent", "identity", "shape", "told", "version")

    dtype: str
    shape: tuple[int, ...]
    device: str
    version: int
    differentiable: bool
    extent: Extent | None
    identity: Identity
    told: tuple[str, Any] | None
    """``values`` or what else was ``wanted``, and it, while the worker waits and nothing changes the tensor."""

    def heard(
        self,
        dtype: str,
        shape: tuple[int, ...],
        device: str,
        version: int,
        differentiable: bool,
        extent: Extent | None,
        told: tuple[str, Any] | None,
    ) -> None:
        """Take what the worker tells of the tensor."""
        self.dtype, self.shape, self.device = dtype, shape, device
        self.version, self.differentiable = version, differentiable
        self.extent, self.told = extent, told


@functools.cache
def class_named(module: str, name: str) -> type[StandIn]:
    """Return a class of stand-ins that reads as the objects' own."""
    spelled = {"__module__": module, "__qualname__": name, "__slots__": ()}
    return type(name.rpartition(".")[2], (StandIn,), spelled)


class Container(Nested):
    """Stand for a container, whose leaves are stand-ins or whatever takes their place."""

    def __init__(self, there: StandIn, steps: list[str], leaves: list[Any]) -> None:
        self.there = there
        self.steps = steps
        self.leaves = leaves

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield the leaves with the way to each."""
        return zip(self.steps, self.leaves, strict=True)

    def rebuilt(self, items: list[Any]) -> Container:
        """Return it with other leaves."""
        return Container(self.there, self.steps, items)


def reduced(value: Any) -> Any:
    """Return how a stand-in travels: as what it stands for."""
    if isinstance(value, StandIn):
        return _native, (value._number,)
    if isinstance(value, Container):
        return _nested, (value.there._number, value.leaves)
    return NotImplemented
