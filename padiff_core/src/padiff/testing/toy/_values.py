"""Wrap tensors and parameters of the toy framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from padiff.adapter import Hook, Parameter, Tensor
from padiff.numerics import Array


def _fitting(array: Array, like: Array, name: str = "a tensor") -> Array:
    """Return a copy in the dtype of another array; raises ``ValueError`` where the shapes differ."""
    if array.shape != like.shape:
        msg = f"an array of shape {array.shape} does not fit {name} of shape {like.shape}"
        raise ValueError(msg)
    return np.array(array, like.dtype, copy=True, order="C")


class ToyTensor(Tensor):
    """A tensor, wrapped."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return str(self.native.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(self.native.shape)

    @property
    def version(self) -> int:
        """Return the count of changes in place."""
        return int(self.native.version)

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it."""
        return bool(self.native.differentiable)

    def numpy(self) -> Array:
        """Return a copy."""
        return np.array(self.native.data, order="C")

    def view(self) -> Array:
        """Return the values."""
        return np.asarray(self.native.data)

    def writable(self) -> Array | None:
        """Return the tensor's own memory."""
        return self.view() if self.native.data.flags.writeable else None

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back with the gradient of the value that is there now."""
        cls, hooks = type(self.native), self.native.step.hooks

        def arrived(gradient: Array) -> Array | None:
            answer = callback(ToyTensor(cls(gradient)))
            return None if answer is None else np.asarray(answer.data)

        hooks.append(arrived)
        return Hook(lambda: hooks.remove(arrived))

    def swapped(self, array: Array) -> Any:
        """Return a tensor with the array's bits; gradients pass through to this one."""
        data = _fitting(array, self.native.data)
        return type(self.native)(data, sources=[(self.native, lambda gradient: gradient)])


class ToyParameter(Parameter):
    """A parameter or a buffer, wrapped."""

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return str(self.native.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(self.native.shape)

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient."""
        return bool(self.native.requires_grad)

    def thaw(self) -> None:
        """Let it get a gradient."""
        self.native.requires_grad = True

    def view(self) -> Array:
        """Return the values."""
        return np.asarray(self.native.data)

    def assign(self, array: Array) -> None:
        """Overwrite the values in place; raises ``ValueError`` where the shapes differ."""
        self.native.data[...] = _fitting(array, self.native.data, repr(self.path))

    def gradient(self) -> Array | None:
        """Return the gradient."""
        gradient: Array | None = self.native.grad
        return gradient

    def set_gradient(self, array: Array | None) -> None:
        """Set the gradient; raises ``ValueError`` where the shapes differ."""
        self.native.grad = None if array is None else _fitting(array, self.native.data, repr(self.path))
