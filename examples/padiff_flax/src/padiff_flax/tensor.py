"""Wrap JAX arrays, and carry values between JAX and numpy bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from padiff.adapter import Array, Hook, InputError, NativeTensor, Tensor, dtypes
from padiff_flax.tape import Taped, passed_through, value_of
from padiff_flax.tape import leaf as leaf


def is_array(value: Any) -> bool:
    """Return whether a value is a JAX array of numbers: keys of random generators are not."""
    return isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended)


def dtype_name(native: Any) -> str:
    """Return the numpy or ml_dtypes name of an array's dtype."""
    return np.dtype(native.dtype).name


def array_of(native: Any) -> Array:
    """Return the values, without a copy on the CPU; numpy will not write to them."""
    return np.asarray(value_of(native))


def native_dtype(name: str) -> Any:
    """Return the dtype of that name, which is numpy's in JAX too."""
    return dtypes.numpy_dtype(name)


def is_inexact(native: Any) -> bool:
    """Return whether the dtype is floating or complex, so that gradients exist."""
    return bool(jnp.issubdtype(native.dtype, jnp.inexact))


def device_name(native: Any) -> str:
    """Return the devices of an array, as other frameworks spell them: ``cpu``, ``cuda:0``."""
    places = value_of(native).devices()
    return ",".join(sorted("cpu" if one.platform == "cpu" else f"{_spelled(one.platform)}:{one.id}" for one in places))


def _spelled(platform: str) -> str:
    return "cuda" if platform == "gpu" else platform


def placed(value: Any, device: str) -> Any:
    """Return a plain array on a device that is named as `device_name` names it."""
    platform, _, index = device.partition(":")
    name = "gpu" if platform == "cuda" else platform
    try:
        found = next(one for one in jax.devices(name) if one.id == int(index or 0))
    except (RuntimeError, StopIteration):
        here = ", ".join(str(one) for one in jax.devices())
        msg = f"JAX has no device {device!r} here; there are {here}.\nHint: install the build of jaxlib for it."
        raise InputError(msg) from None
    return jax.device_put(value, found)


def wide_enough(dtype: Any) -> AbstractContextManager[Any]:
    """Return a context in which JAX keeps a dtype of 64 bits, which it cuts to 32 by default."""
    return jax.enable_x64(True) if np.dtype(dtype).itemsize * 8 >= 64 else nullcontext()


def from_array(array: Array, device: str = "cpu") -> Any:
    """Return a JAX array on a device with a copy of a numpy array, 64 bits too."""
    array = np.asarray(array, array.dtype.newbyteorder("="))
    try:
        with wide_enough(array.dtype):
            return placed(jnp.array(array, copy=True), device)
    except (TypeError, jax.errors.JaxRuntimeError) as error:
        msg = f"JAX holds no {array.dtype.name}: {error}\nHint: convert it to a dtype that JAX has."
        raise InputError(msg) from error


def copied(native: Any, device: str) -> Any:
    """Return the array of a tensor on a device, without its history: arrays never change."""
    return placed(value_of(native), device)


class FlaxTensor(NativeTensor):
    """A JAX array, plain or on the tape, wrapped. Arrays never change: their version is always 0."""

    __slots__ = ()
    dtype_name, device_name, array_of = staticmethod(dtype_name), staticmethod(device_name), staticmethod(array_of)

    @property
    def differentiable(self) -> bool:
        """Return whether it is on the tape."""
        return isinstance(self.native, Taped)

    def extent(self) -> tuple[int, int] | None:
        """Return the place of the value on the tape, which is this tensor's alone; None where `overwrite` cannot."""
        native = self.native
        return (id(native), id(native) + 1) if isinstance(native, Taped) and native.node.parents else None

    def overwrite(self, array: Array) -> bool:
        """Let the tape hold these values from now on, wherever the tensor is used; leaves and constants stay."""
        if self.extent() is None:
            return False
        self.native.value = from_array(array.astype(dtypes.numpy_dtype(self.dtype), copy=False), self.device)
        return True

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back with the complete gradient, over all uses of the value, before the tape goes on with it."""
        hooks = self.native.node.hooks.setdefault(self.native.index, [])

        def arrived(gradient: Any) -> Any | None:
            return callback(FlaxTensor(gradient))

        hooks.append(arrived)
        return Hook(lambda: hooks.remove(arrived))

    def swapped(self, array: Array) -> Any:
        """Return an array with the given bits; on the tape, gradients pass through it to this one."""
        value = from_array(self.fitting(array), self.device)
        return passed_through(value, self.native) if self.differentiable else value
