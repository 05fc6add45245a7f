"""Wrap Paddle tensors: numpy in and out, gradients, values swapped in the midst of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

import numpy as np
import paddle
from paddle.autograd import PyLayer

from padiff.adapter import Array, Dtypes, Extent, Hook, NativeTensor, Tensor, array_at, dtypes, handed_on
from padiff_paddle.grads import LEAVES
from padiff_paddle.versions import PADDLE

# Paddle has no tensors of the unsigned integers above 8 bits, and would read uint16 as bfloat16.
_SMALL = ("float8_e4m3fn", "float8_e5m2")
_NAMES = (*(name for name in dtypes.PLAIN if name[:4] != "uint"), "uint8", "bfloat16", *_SMALL)
_DTYPES = Dtypes("Paddle", paddle, _NAMES)
dtype_name, native_dtype, is_inexact = _DTYPES.of, _DTYPES.native, _DTYPES.inexact
_WIDENED = {"uint16": "int32", "uint32": "int64"}
_CARRIERS = dict.fromkeys(_SMALL, "uint8") | {"bfloat16": "int16"}
"""The Paddle dtype under which the bits of what numpy does not know cross."""
_SHARED = frozenset(native_dtype(name) for name in _NAMES if name not in _CARRIERS)
"""The Paddle dtypes that numpy knows."""
_COPIED = 1 << 12
"""Elements up to which values are copied, which takes about 1 us; an array over the memory itself takes 10 to make."""

_failures: ContextVar[list[BaseException] | None] = ContextVar("padiff_paddle_failures", default=None)


@contextmanager
def relayed() -> Iterator[None]:
    """Raise what a gradient callback raised as itself, after the backward pass.

    Through Paddle it would come out as an ``OSError``, and some errors abort the process on their way.
    """
    failures: list[BaseException] = []
    token = _failures.set(failures)
    try:
        yield
    finally:
        _failures.reset(token)
        if failures:
            raise failures[0]


def device_name(native: Any) -> str:
    """Return a tensor's place in padiff's words: ``Place(gpu:0)`` is ``cuda:0``."""
    place = str(native.place).removeprefix("Place(").removesuffix(")")
    return "cpu" if place.startswith(("cpu", "gpu_pinned")) else place.replace("gpu", "cuda")


def array_of(native: Any) -> Array:
    """Return the values as an array: a copy where that is quicker, or where they do not lie in the CPU's memory."""
    dense = _dense(native)
    if isinstance(dense, np.ndarray):
        return dense
    if not dense.place.is_cpu_place():
        dense = handed_on(dense.cpu)
    elif dense.is_contiguous() and math.prod(dense.shape) <= _COPIED and dense.dtype in _SHARED:
        return cast(Array, dense.numpy())
    return _memory_of(dense)


def from_array(array: Array, device: str = "cpu") -> Any:
    """Return a fresh tensor on a device with a copy of the array's bits; raises `InputError` for foreign dtypes."""
    name = _name_of(array.dtype)
    if name in _WIDENED:
        name = _WIDENED[name]
        array = array.astype(name)
    native_dtype(name)
    array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    place = device.replace("cuda", "gpu")
    if name not in _CARRIERS:
        return paddle.to_tensor(array, place=place)
    return paddle.to_tensor(np.asarray(array, order="C").view(_CARRIERS[name]), place=place).view(name)


@cache
def _name_of(dtype: np.dtype[Any]) -> str:
    """Return a dtype's name, which numpy spells anew each time."""
    return dtype.name


def copied(native: Any, device: str) -> Any:
    """Return a copy of a tensor on a device, without its history."""
    copy = native.detach().clone()
    return copy if device_name(copy) == device else copy.to(device.replace("cuda", "gpu"))


def leaf(native: Any) -> Any:
    """Return a new tensor as one that collects gradients."""
    native.stop_gradient = False
    return native


def _dense(native: Any) -> Any:
    """Return a detached dense tensor, or an array for the row-wise gradient of a sparse embedding."""
    if native.is_selected_rows():
        rows = native.get_selected_rows()
        values = np.asarray(rows.get_tensor())
        full = np.zeros((rows.height(), *values.shape[1:]), values.dtype)
        np.add.at(full, rows.rows(), values)
        return full
    if native.is_dist():
        native = native._local_value()
    native = native.detach()
    return native if native.is_dense() else native.to_dense()


def _tensor_or_none(value: Any) -> Any:
    """Return what a callback may give Paddle; anything else would abort the process."""
    if value is not None and not isinstance(value, paddle.Tensor):
        msg = f"a gradient callback returned {type(value).__qualname__}; expected None or a paddle.Tensor"
        raise TypeError(msg)
    return value


def _memory_of(native: Any, *, writable: bool = False) -> Array:
    """Return an array over the memory of a dense tensor on the CPU; an empty tensor has none.

    A handle of its own keeps that alive: ``clear_gradient`` frees the memory of a gradient under the tensor.
    """
    dtype = dtypes.numpy_dtype(dtype_name(native))
    if 0 in native.shape:  # Paddle takes half as long as all the rest to tell the size
        return np.empty(native.shape, dtype)
    return array_at(PADDLE.handle(native), native.data_ptr(), dtype, native.shape, native.strides, writable=writable)


class _Swap(PyLayer):
    """What gives other values forward, and passes the gradient through backward.

    The values come from a function: Paddle looks into lists and tuples among the arguments, and would take a
    tensor there for an input changed in place.
    """

    @staticmethod
    def forward(ctx: Any, native: Any, make: Callable[[], Any]) -> Any:
        """Return the fresh tensor."""
        return make()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return the gradient as it came."""
        return gradient


class PaddleTensor(NativeTensor):
    """An eager ``paddle.Tensor``, wrapped."""

    __slots__ = ()
    dtype_name, device_name, array_of = staticmethod(dtype_name), staticmethod(device_name), staticmethod(array_of)

    @property
    def version(self) -> int:
        """Return Paddle's in-place version; ``set_value``, ``copy_`` and BatchNorm do not raise it."""
        return int(self.native.inplace_version)

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it."""
        return not self.native.stop_gradient and is_inexact(self.native)

    def numpy(self) -> Array:
        """Return a snapshot: one copy, in the tensor's own dtype."""
        return super().numpy() if device_name(self.native) == "cpu" else array_of(self.native)

    def writable(self) -> Array | None:
        """Return a writable array over the CPU tensor's memory, None where there is no such memory."""
        native = self.native
        if device_name(native) != "cpu" or not native.is_dense() or native.is_dist():
            return None
        return _memory_of(native.detach(), writable=True)

    def extent(self) -> Extent | None:
        """Return the addresses of its memory: of what is contiguous without an array over it, which takes longest."""
        native = self.native
        if not native.place.is_cpu_place() or not native.is_dense() or native.is_dist() or not native.is_contiguous():
            return super().extent()
        size, start = math.prod(native.shape) * native.element_size(), native.data_ptr()
        return (start, start + size) if size else None

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back with the gradient, summed over all consumers; a returned native tensor replaces it."""

        def arrived(gradient: Any) -> Any:
            failures = _failures.get()
            if failures:
                return None
            try:
                return _tensor_or_none(callback(PaddleTensor(gradient)))
            except BaseException as error:
                if failures is None:
                    raise
                failures.append(error)
                return None

        hook = Hook(self.native.register_hook(arrived).remove)
        if self.native.is_leaf:
            hook.add(LEAVES.add(self.native, arrived))
        return hook

    def swapped(self, array: Array) -> Any:
        """Return a native tensor with the array's bits, through which gradients pass to this one."""
        array = self.fitting(array)
        if not self.differentiable:
            return from_array(array, self.device)
        with paddle.enable_grad():  # whatever mode the caller is in: this tensor collects gradients there as well
            swapped = _Swap.apply(self.native, lambda: from_array(array, self.device))
            # Paddle drops what hooks on a PyLayer's own output return; on a view of it they work.
            return PADDLE.viewed(swapped) if swapped.shape and 0 not in swapped.shape else paddle.assign(swapped)
