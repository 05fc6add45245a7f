"""Put a model's tensors back as they were, and other storages under them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from padiff.adapter import switched
from padiff_paddle.tensor import array_of, device_name, from_array
from padiff_paddle.versions import PADDLE


def remembered(native: Any) -> Callable[[], None]:
    """Return what puts ``stop_gradient`` back, and the gradient: the same storage, under handles that a user holds too.

    A row-wise gradient comes back dense, as Paddle cannot build one from Python.
    """
    stopped, gradient = native.stop_gradient, native.grad if native.is_leaf else None
    rows = gradient is not None and gradient.is_selected_rows()
    if rows:
        gradient = from_array(np.array(array_of(gradient)), device_name(native))
    held = None if gradient is None or rows else storage(gradient)

    def restore() -> None:
        native.stop_gradient = stopped
        if not native.is_leaf:
            return
        native.clear_gradient(False)
        if gradient is not None and held is not None:
            gradient.get_tensor()._share_data_with(held)
        if gradient is not None:
            native.grad = gradient
        if held is not None:
            native.grad.get_tensor()._share_data_with(held)

    return restore


def kept(native: Any) -> Callable[[], None]:
    """Return what puts the values of a buffer back."""
    with paddle.no_grad():
        values = native.detach().clone()

    def restore() -> None:
        with paddle.no_grad():
            native.copy_(values, True)

    return restore


def cast(native: Any, dtype: str) -> Any:
    """Return a tensor with the values of another in a wider dtype, without its history."""
    with paddle.no_grad():
        return native.detach().astype(dtype)


def storage(native: Any) -> Any:
    """Return a second handle on what holds a tensor's values."""
    return PADDLE.handle(native)


def hold(native: Any, storage: Any) -> None:
    """Put other values under a tensor; a gradient, whose dtype would no longer be the tensor's, goes."""
    if native.is_leaf:
        native.clear_gradient(False)
    native.get_tensor()._share_data_with(storage)


def computing_in(dtype: str) -> AbstractContextManager[None]:
    """Let tensors that a forward makes without naming a dtype be of this one."""
    return switched(paddle.get_default_dtype, paddle.set_default_dtype, dtype)
