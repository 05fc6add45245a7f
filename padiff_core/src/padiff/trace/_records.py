"""Hold what one run did: the tree of calls with their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Module
from padiff.trace._values import ValueStore

__all__ = ["Call", "Frame", "Leaf", "Slot", "Trace"]


@attrs.frozen
class Slot:
    """Stand in a call's recorded arguments for the tensor that is its ``index``-th input leaf."""

    index: int


@attrs.define(eq=False)
class Leaf:
    """Describe one tensor that a call took or gave.

    ``token`` names the tensor within its run: the same object, unchanged in place, has the same token everywhere.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    token: int
    differentiable: bool = False


@attrs.frozen
class Frame:
    """Name one calling frame; ``library`` is true for the framework's own files."""

    file: str
    line: int
    function: str
    start: int
    """First line of the function."""
    library: bool

    def __str__(self) -> str:
        """Return it as ``file:line in function``."""
        return f"{self.file}:{self.line} in {self.function}"


@attrs.define(eq=False)
class Call:
    """Record one execution of a module."""

    index: int
    module: Module
    ordinal: int
    """Which execution of this module within the run, from 0."""
    parent: Call | None
    training: bool
    frames: tuple[Frame, ...] = ()
    """The calling frames, innermost first, without those that only pass a call on."""
    inputs: list[Leaf] = attrs.field(factory=list)
    outputs: list[Leaf] = attrs.field(factory=list)
    children: list[Call] = attrs.field(factory=list)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = attrs.field(factory=dict)
    """The arguments, each tensor replaced by a `Slot`."""

    @property
    def path(self) -> str:
        """Return the module's path."""
        return self.module.path

    @property
    def leaf(self) -> bool:
        """Return whether no other module is called inside; operations may be."""
        return all(child.module.operation for child in self.children)

    def subtree(self) -> Iterator[Call]:
        """Yield this call and all below it, in execution order."""
        yield self
        for child in self.children:
            yield from child.subtree()

    def ancestors(self) -> Iterator[Call]:
        """Yield the enclosing calls, innermost first."""
        call = self.parent
        while call is not None:
            yield call
            call = call.parent


@attrs.define(eq=False)
class Trace:
    """Hold one run: its calls in execution order (the first is the root's) and what was recorded of its tensors."""

    store: ValueStore
    calls: list[Call] = attrs.field(factory=list)
    values: dict[int, int] = attrs.field(factory=dict)
    """Token -> key of the tensor's value."""
    gradients: dict[int, int] = attrs.field(factory=dict)
    """Token -> key of the tensor's complete gradient, over all consumers."""
    samples: dict[int, NDArray[np.float64]] = attrs.field(factory=dict)
    """Token -> a few of the tensor's elements, at positions that depend on its size alone."""
    outputs: list[NDArray[Any]] = attrs.field(factory=list)
    """The root's outputs, as its caller got them."""
    returned: str = ""
    """What the root returned, in words, where it holds no tensor."""
    loss: float | None = None
    input_gradients: dict[int, NDArray[Any]] = attrs.field(factory=dict)
    """Index of an input of the root -> the gradient that reached it, behind every hook of the model."""
    parameter_gradients: dict[str, int] = attrs.field(factory=dict)
    """Parameter path -> key of its gradient, native layout."""
    buffers: dict[str, int] = attrs.field(factory=dict)
    """Buffer path -> key of its value after the run, native layout."""

    @property
    def root(self) -> Call:
        """Return the call of the model itself."""
        return self.calls[0]

    def value(self, leaf: Leaf) -> NDArray[Any] | None:
        """Return a leaf's recorded value, or None; never write to it."""
        key = self.values.get(leaf.token)
        return None if key is None else self.store.get(key)

    def gradient(self, leaf: Leaf) -> NDArray[Any] | None:
        """Return a leaf's recorded gradient, or None where none reached it; never write to it."""
        key = self.gradients.get(leaf.token)
        return None if key is None else self.store.get(key)

    def by_module(self) -> dict[int, list[Call]]:
        """Return the calls of each native module (by ``id``), in execution order."""
        found: dict[int, list[Call]] = {}
        for call in self.calls:
            found.setdefault(id(call.module.native), []).append(call)
        return found

    def array(self, key: int) -> NDArray[Any]:
        """Return what the store keeps under a key; never write to it."""
        return self.store.get(key)
