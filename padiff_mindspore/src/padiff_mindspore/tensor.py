"""Wrap MindSpore tensors, and carry values between MindSpore and numpy bit for bit."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import attrs
import mindspore
import numpy as np

from padiff.adapter import Array, Dtypes, Hook, NativeTensor, Tensor, array_at, dtypes
from padiff_mindspore import autograd

_SMALL = ("float8_e4m3fn", "float8_e5m2")
_DTYPES = Dtypes("mindspore", mindspore, (*dtypes.PLAIN, "bfloat16", *_SMALL))
dtype_name, native_dtype, is_inexact = _DTYPES.of, _DTYPES.native, _DTYPES.inexact
_DEVICES = {"CPU": "cpu", "GPU": "cuda", "Ascend": "npu"}


def device_name(native: Any = None) -> str:
    """Return where MindSpore computes: ``cpu``, ``cuda:0``, ``npu:1``; tensors go there by themselves."""
    name = _DEVICES.get(mindspore.get_context("device_target"), "cpu")
    return name if name == "cpu" else f"{name}:{mindspore.get_context('device_id')}"


def array_of(native: Any) -> Array:
    """Return the values as an array, without a copy where they lie contiguous in the CPU's memory."""
    array: Array = native.asnumpy()
    dtype = dtypes.numpy_dtype(dtype_name(native))
    return array if array.dtype == dtype else array.view(dtype)


def from_array(array: Array, device: str = "cpu") -> Any:
    """Return a fresh tensor with a copy of the array's bits; MindSpore itself moves it to where it computes."""
    dtype = native_dtype(array.dtype.name)
    if array.dtype.name not in _SMALL:
        return mindspore.Tensor(np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C"))
    native = mindspore.Tensor(np.zeros(array.shape, np.float32), dtype)
    array_of(native)[...] = array
    return native


def copied(native: Any, device: str) -> Any:
    """Return a copy of a tensor, without its history."""
    return from_array(array_of(native))


def leaf(native: Any) -> Any:
    """Return a new tensor as one that collects gradients."""
    native.requires_grad_()
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


@attrs.frozen
class _Seen:
    """What a tensor was when it was last asked about, and how often it had changed until then."""

    alive: Callable[[], Any]
    marks: tuple[int, ...] = ()
    memory: Array | None = None
    """Keeps the storage of a tensor without a maker, so that no later one lies at the same address."""
    changes: int = -1


class _Changes:
    """What counts the changes of tensors.

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
        if seen is None or seen.alive() is not native:
            seen = _Seen(weakref.ref(native, lambda _: self._known.pop(key, None)))
        memory = None if maker is not None else native.asnumpy()
        self._known[key] = seen = attrs.evolve(seen, marks=marks, memory=memory, changes=seen.changes + 1)
        return seen.changes


_changes = _Changes()


class MindSporeTensor(NativeTensor):
    """A ``mindspore.Tensor``, wrapped."""

    __slots__ = ()
    dtype_name, device_name, array_of = staticmethod(dtype_name), staticmethod(device_name), staticmethod(array_of)

    @property
    def version(self) -> int:
        """Return how often the tensor was found changed in place."""
        return _changes.of(self.native)

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it."""
        return autograd.differentiable(self.native) and is_inexact(self.native)

    def writable(self) -> Array | None:
        """Return an array over the tensor's own memory; None off the CPU and where the elements do not lie in order.

        Of a view (every ``reshape`` makes one, and so does Dense with more than two axes) ``asnumpy`` is a copy.
        """
        if device_name() != "cpu" or not self.native.size or not self.native.is_contiguous():
            return None
        view = array_of(self.native)
        address = self.native.data_ptr()
        return view if view.ctypes.data == address else array_at(self.native, address, view.dtype, view.shape)

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
        values = self.fitting(array)
        if not self.differentiable:
            return from_array(values)
        return autograd.passing(self.native, lambda: from_array(values))
