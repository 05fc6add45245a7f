"""Wrap MindSpore tensors, and carry values between MindSpore and numpy bit for bit."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import mindspore
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Hook, Tensor
from padiff.errors import InputError
from padiff_mindspore import autograd

__all__ = [
    "MindSporeTensor",
    "array_of",
    "device_name",
    "dtype_of",
    "from_array",
    "give",
    "is_inexact",
    "native_dtype",
    "numpy_dtype",
    "overwrite",
]

Array = NDArray[Any]

_PLAIN = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
_SMALL = ("float8_e4m3fn", "float8_e5m2")
_DTYPES: dict[Any, np.dtype[Any]] = {
    **{getattr(mindspore, name): np.dtype(name) for name in _PLAIN.split()},
    **{getattr(mindspore, name): np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", *_SMALL)},
}
_BY_NAME = {array.name: native for native, array in _DTYPES.items()}
_DEVICES = {"CPU": "cpu", "GPU": "cuda", "Ascend": "npu"}


def numpy_dtype(native: Any) -> np.dtype[Any]:
    """Return the dtype of numpy or ml_dtypes that a tensor's values have."""
    try:
        return _DTYPES[native.dtype]
    except KeyError:
        msg = f"{native.dtype} has no counterpart in numpy or ml_dtypes\nHint: use tensors of another dtype"
        raise InputError(msg) from None


def dtype_of(native: Any) -> str:
    """Return a tensor's dtype by its numpy or ml_dtypes name."""
    return numpy_dtype(native).name


def native_dtype(name: str) -> Any:
    """Return the MindSpore dtype of that name; raises `InputError` where MindSpore has none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(sorted(_BY_NAME))
        msg = f"mindspore has no dtype for numpy's {name}\nHint: convert it to one of {known}"
        raise InputError(msg) from None


def is_inexact(native: Any) -> bool:
    """Return whether the dtype is floating or complex, so that gradients exist."""
    return numpy_dtype(native).kind in "fcV"


def device_name() -> str:
    """Return where MindSpore computes: ``cpu``, ``cuda:0``, ``npu:1``; tensors go there by themselves."""
    name = _DEVICES.get(mindspore.get_context("device_target"), "cpu")
    return name if name == "cpu" else f"{name}:{mindspore.get_context('device_id')}"


def array_of(native: Any) -> Array:
    """Return the values as an array, without a copy where they lie contiguous in the CPU's memory."""
    array: Array = native.asnumpy()
    dtype = numpy_dtype(native)
    return array if array.dtype == dtype else array.view(dtype)


def from_array(array: Array) -> Any:
    """Return a fresh tensor with a copy of the array's bits."""
    dtype = native_dtype(array.dtype.name)
    if array.dtype.name not in _SMALL:
        return mindspore.Tensor(np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C"))
    native = mindspore.Tensor(np.zeros(array.shape, np.float32), dtype)
    array_of(native)[...] = array
    return native


def overwrite(native: Any, array: Array) -> None:
    """Write an array into a tensor's memory; give it a storage of its own where there is no such memory.

    Memory is the better place: MindSpore's optimizers are compiled, and go on stepping on the storage that they saw.
    """
    memory = MindSporeTensor(native).writable()
    if memory is not None and (memory.shape, memory.dtype) == (array.shape, array.dtype):
        np.copyto(memory, array)
    else:
        give(native, from_array(array))


def give(native: Any, storage: Any) -> None:
    """Put another tensor's storage under a tensor object."""
    if native.dtype != storage.dtype:
        native.set_dtype(storage.dtype)  # else what MindSpore has inferred of a parameter stays as it was
    native.assign_value(storage)


def _memory_of(native: Any) -> Array:
    """Return an array over the memory of a contiguous tensor on the CPU, which lives as long as the array."""
    memory = (ctypes.c_byte * native.nbytes).from_address(native.data_ptr())
    memory.owner = native
    return np.frombuffer(memory, dtype=np.uint8).view(numpy_dtype(native)).reshape(native.shape)


@attrs.frozen
class _Seen:
    """Hold what a tensor was when it was last asked about, and how often it had changed until then."""

    alive: Callable[[], Any]
    marks: tuple[int, ...]
    memory: Array | None
    """Keeps the storage of a tensor without a maker, so that no later one lies at the same address."""
    changes: int


class _Changes:
    """Count the changes of tensors.

    MindSpore's own count knows of ``copy_`` alone. In a recorded run ``x[0] = y`` gives the tensor another storage and,
    where it is differentiable, another operation as its maker.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Seen] = {}

    def of(self, native: Any) -> int:
        """Return how often a tensor was found changed since it was first asked about."""
        autograd.finish()  # the count grows when the operation runs
        key, maker = id(native), autograd.node_number(native)
        marks = (int(native.data_ptr()), int(native._version), -1 if maker is None else maker)
        seen = self._known.get(key)
        if seen is not None and seen.alive() is native and seen.marks == marks:
            return seen.changes
        memory = None if maker is not None else native.asnumpy()
        if seen is not None and seen.alive() is native:
            self._known[key] = attrs.evolve(seen, marks=marks, memory=memory, changes=seen.changes + 1)
        else:
            self._known[key] = _Seen(weakref.ref(native, lambda _: self._known.pop(key, None)), marks, memory, 0)
        return self._known[key].changes


_changes = _Changes()


class MindSporeTensor(Tensor):
    """Wrap one ``mindspore.Tensor``."""

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
        """Return where it is computed with."""
        return device_name()

    @property
    def version(self) -> int:
        """Return how often the tensor was found changed in place."""
        return _changes.of(self.native)

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it."""
        return autograd.differentiable(self.native) and is_inexact(self.native)

    def numpy(self) -> Array:
        """Return a snapshot in C order: one copy."""
        return np.array(array_of(self.native), order="C")

    def view(self) -> Array:
        """Return the values, without a copy where they lie contiguous on the CPU."""
        return array_of(self.native)

    def writable(self) -> Array | None:
        """Return an array over the tensor's own memory; None off the CPU and where the elements do not lie in order.

        Of a view (every ``reshape`` makes one, and so does Dense with more than two axes) ``asnumpy`` is a copy.
        """
        if device_name() != "cpu" or not self.native.size or not self.native.is_contiguous():
            return None
        view = array_of(self.native)
        return view if view.ctypes.data == self.native.data_ptr() else _memory_of(self.native)

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back with the complete gradient of the value that the tensor holds now.

        A later in-place change does not disturb it: MindSpore keeps the hook with the value, not with the object. It
        calls the hook with None where an operation has several outputs and this one is not used.
        """

        def arrived(gradient: Any) -> Any | None:
            return None if gradient is None else callback(MindSporeTensor(gradient))

        return Hook(self.native.register_hook(arrived).remove)

    def swapped(self, array: Array) -> Any:
        """Return a tensor with the array's bits through which gradients pass unchanged: one copy."""
        if array.shape != self.shape:
            msg = f"an array of shape {array.shape} cannot stand for a tensor of shape {self.shape}"
            raise ValueError(msg)
        values = array.astype(numpy_dtype(self.native), copy=False)
        if not self.differentiable or not autograd.records():
            return from_array(values)
        return autograd.passing(self.native, lambda: from_array(values))
