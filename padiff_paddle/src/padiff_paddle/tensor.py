"""Wrap Paddle tensors: numpy in and out, gradients, values swapped in the midst of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np
import paddle
from numpy.typing import NDArray
from paddle.autograd import PyLayer

from padiff.adapter import Hook, Tensor
from padiff.errors import InputError

__all__ = [
    "PaddleTensor",
    "array_of",
    "device_of",
    "dtype_of",
    "from_array",
    "is_inexact",
    "relayed",
    "to_device",
]

Array = NDArray[Any]

# Paddle's numpy() gives bare integers for these: (the twin in ml_dtypes, what carries the bits in Paddle).
_CARRIED: dict[str, tuple[Any, str]] = {
    "bfloat16": (ml_dtypes.bfloat16, "int16"),
    "float8_e4m3fn": (ml_dtypes.float8_e4m3fn, "uint8"),
    "float8_e5m2": (ml_dtypes.float8_e5m2, "uint8"),
}
# Paddle has no such tensors, and would read uint16 as bfloat16; what has no wider one (uint64) is refused.
_WIDENED: dict[str, str] = {"uint16": "int32", "uint32": "int64"}
_PLAIN = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_INEXACT = ("float", "bfloat", "complex")

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


def dtype_of(native: Any) -> str:
    """Return a tensor's dtype by its numpy or ml_dtypes name."""
    return str(native.dtype).removeprefix("paddle.")


def device_of(native: Any) -> str:
    """Return a tensor's place in padiff's words: ``Place(gpu:0)`` is ``cuda:0``."""
    text = str(native.place).removeprefix("Place(").removesuffix(")")
    if text.startswith("gpu_pinned"):
        return "cpu"
    return text.replace("gpu", "cuda")


def is_inexact(native: Any) -> bool:
    """Return whether the dtype is floating or complex, so that gradients exist."""
    return dtype_of(native).startswith(_INEXACT)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's dtype, from ml_dtypes where numpy has none."""
    return np.dtype(_CARRIED[name][0]) if name in _CARRIED else np.dtype(name)


def array_of(native: Any) -> Array:
    """Return the values as an array, without a copy where they lie in the CPU's memory."""
    dense = _dense(native)
    if isinstance(dense, np.ndarray):
        return dense
    name = dtype_of(dense)
    dense = dense if dense.place.is_cpu_place() else dense.cpu()
    if name not in _CARRIED:
        return np.asarray(np.from_dlpack(dense))
    twin, carrier = _CARRIED[name]
    return np.asarray(np.from_dlpack(dense.view(carrier))).view(twin)


def from_array(array: Array, device: str) -> Any:
    """Return a fresh tensor on a device with a copy of the array's bits; raise `InputError` for foreign dtypes."""
    name = array.dtype.name
    if name not in (*_PLAIN, *_CARRIED, *_WIDENED):
        msg = f"Paddle has no dtype for numpy's {name}"
        msg += f"\nHint: convert it to one of {', '.join(sorted((*_PLAIN, *_CARRIED)))}"
        raise InputError(msg)
    array = array.astype(_WIDENED.get(name, array.dtype.newbyteorder("=")), copy=False)
    place = device.replace("cuda", "gpu")
    if name not in _CARRIED:
        return paddle.to_tensor(array, place=place)
    carrier = _CARRIED[name][1]
    return paddle.to_tensor(np.asarray(array, order="C").view(carrier), place=place).view(name)


def to_device(native: Any, device: str) -> Any:
    """Return a detached copy of a tensor on a device."""
    copy = native.detach().clone()
    return copy if device_of(copy) == device else copy.to(device.replace("cuda", "gpu"))


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


class _Memory:
    """Offer an array's memory for writing, as DLPack's arrays are read-only; keep its owner alive."""

    def __init__(self, view: Array, owner: Any) -> None:
        carrier = view if view.dtype.isbuiltin == 1 else view.view(f"V{view.dtype.itemsize}")
        data = (view.__array_interface__["data"][0], False)
        self.__array_interface__ = {**carrier.__array_interface__, "data": data}
        self._owner = (view, owner)


class _Swap(PyLayer):
    """Give other values forward, and pass the gradient through backward.

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


class PaddleTensor(Tensor):
    """Wrap one eager ``paddle.Tensor``."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name."""
        return dtype_of(self.native)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(self.native.shape)

    @property
    def device(self) -> str:
        """Return where it lies: ``cpu``, ``cuda:0``, ``npu:1``."""
        return device_of(self.native)

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
        if device_of(self.native) == "cpu":
            return np.array(array_of(self.native), order="C")
        return array_of(self.native)

    def view(self) -> Array:
        """Return the values, read-only, without a copy on the CPU."""
        return array_of(self.native)

    def writable(self) -> Array | None:
        """Return a writable array over the CPU tensor's memory, None where there is no such memory."""
        native = self.native
        if device_of(native) != "cpu" or not native.is_dense() or native.is_dist():
            return None
        view = array_of(native)
        return np.asarray(_Memory(view, native)).view(view.dtype) if view.size else view

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back with the gradient, summed over all consumers; a returned native tensor replaces it."""

        def hear(gradient: Any) -> Any:
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

        return Hook(self.native.register_hook(hear).remove)

    def swapped(self, array: Array) -> Any:
        """Return a native tensor with the array's bits, through which gradients pass to this one."""
        if array.shape != self.shape:
            msg = f"an array of shape {array.shape} cannot stand for a tensor of shape {self.shape}"
            raise ValueError(msg)
        array = array.astype(numpy_dtype(self.dtype), copy=False)
        if not self.differentiable:
            return from_array(array, self.device)
        swapped = _Swap.apply(self.native, lambda: from_array(array, self.device))
        # Paddle drops what hooks on a PyLayer's own output return; on a view of it they work.
        return swapped.view(swapped.shape) if swapped.ndim and swapped.size else paddle.assign(swapped)
