"""Wrap torch tensors, and carry values between torch and numpy bit for bit.

numpy knows neither bfloat16 nor fp8: these cross as integers of the same width, viewed as ml_dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from padiff.adapter import Hook, Tensor
from padiff.errors import InputError

__all__ = ["TorchTensor", "device_name", "dtype_name", "dtype_of", "filled", "from_array", "numpy_view"]

Array = NDArray[Any]


@attrs.frozen
class _Format:
    """Pair a torch dtype with numpy's; ``carrier`` is the torch dtype under which its bits cross."""

    torch: Any
    numpy: np.dtype[Any]
    carrier: Any = None


def _formats() -> tuple[_Format, ...]:
    plain = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
    small = [name for name in dir(ml_dtypes) if name.startswith("float8_") and hasattr(torch, name)]
    return (
        *(_Format(getattr(torch, name), np.dtype(name)) for name in plain.split() if hasattr(torch, name)),
        _Format(torch.bfloat16, np.dtype(ml_dtypes.bfloat16), torch.int16),
        *(_Format(getattr(torch, name), np.dtype(getattr(ml_dtypes, name)), torch.uint8) for name in small),
    )


_BY_TORCH = {entry.torch: entry for entry in _formats()}
_BY_NAME = {entry.numpy.name: entry for entry in _formats()}
_NAMES = {entry.torch: entry.numpy.name for entry in _formats()}  # numpy puts a dtype's name together each time

# What has no counterpart in numpy, and the dtype that holds its values exactly.
_WIDENED = {torch.complex32: torch.complex64}


def _format(dtype: Any) -> _Format:
    try:
        return _BY_TORCH[_WIDENED.get(dtype, dtype)]
    except KeyError:
        msg = f"{dtype} has no counterpart in numpy or ml_dtypes\nHint: use tensors of another dtype"
        raise InputError(msg) from None


def dtype_name(native: Any) -> str:
    """Return the numpy or ml_dtypes name of a native tensor's dtype; quantized tensors read as float32."""
    return "float32" if native.is_quantized else _NAMES.get(native.dtype) or _format(native.dtype).numpy.name


def dtype_of(name: str) -> Any:
    """Return the torch dtype of that name; raises `InputError` where torch has none."""
    try:
        return _BY_NAME[name].torch
    except KeyError:
        known = ", ".join(sorted(_BY_NAME))
        msg = f"torch has no dtype for numpy's {name}\nHint: convert it to one of {known}"
        raise InputError(msg) from None


def device_name(native: Any) -> str:
    """Return the device of a native tensor: ``cpu``, ``cuda:0``."""
    return str(native.device)


def _dense(native: Any) -> Any:
    """Return an ordinary strided tensor with the same values: the same object for ordinary tensors."""
    if native.is_quantized:
        return native.dequantize()
    if native.is_nested:
        return native.to_padded_tensor(0.0)
    if native.layout is not torch.strided:
        return native.to_dense()
    return native


def _host(native: Any) -> Any:
    """Return a tensor on the CPU whose memory numpy can read, outside autograd."""
    if native.is_meta:
        msg = f"a tensor of shape {tuple(native.shape)} is on the meta device and has no values"
        msg += "\nHint: model.to_empty(device='cpu'), then load its weights"
        raise InputError(msg)
    tensor = _dense(native.detach()).cpu().resolve_conj().resolve_neg()
    return tensor.to(_WIDENED[tensor.dtype]) if tensor.dtype in _WIDENED else tensor


def _exposed(tensor: Any) -> Array:
    """Return the memory of a plain CPU tensor as numpy sees it, never copied."""
    entry = _format(tensor.dtype)
    array: Array
    if entry.carrier is None:
        array = tensor.numpy()
        return array
    array = tensor.view(entry.carrier).numpy().view(entry.numpy)
    return array


def numpy_view(native: Any) -> Array:
    """Return a tensor's values, without a copy for ordinary tensors on the CPU."""
    return _exposed(_host(native))


def filled(native: Any, array: Array) -> Any:
    """Overwrite an ordinary tensor with an array, in place and converted to its dtype; return it.

    numpy writes into the tensor's memory rather than torch reading the array's: so read-only, byte-swapped
    and strided arrays need no copy of their own. Raises ``ValueError`` where the shapes differ: nothing is
    broadcast.
    """
    if tuple(native.shape) != array.shape:
        msg = f"an array of shape {array.shape} does not fit a tensor of shape {tuple(native.shape)}"
        raise ValueError(msg)
    with torch.no_grad():
        if _address(native) is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                np.copyto(_exposed(native.detach()), array, casting="unsafe")
        else:
            native.copy_(from_array(array))
    return native


def from_array(array: Array) -> Any:
    """Return a CPU tensor with a copy of the array, in the array's dtype.

    In memory of torch's own: its kernels may round otherwise where data is aligned otherwise.
    """
    return filled(torch.empty(array.shape, dtype=dtype_of(array.dtype.name)), array)


class _Swap(torch.autograd.Function):
    """Return another value forward, and pass the gradient through backward."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, box: list[Any]) -> Any:
        # Boxed: a tensor argument that is returned counts as a view, and a view made by a custom function
        # refuses in-place changes: an in-place ReLU would raise.
        return box.pop()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, None]:
        return gradient, None


class TorchTensor(Tensor):
    """Wrap a `torch.Tensor`."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name."""
        return dtype_name(self.native)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape; of a nested tensor, that of the padded one."""
        return tuple(_dense(self.native).shape if self.native.is_nested else self.native.shape)

    @property
    def device(self) -> str:
        """Return where it lies."""
        return device_name(self.native)

    @property
    def version(self) -> int:
        """Return autograd's count of in-place changes; 0 for inference tensors, which keep none."""
        return 0 if self.native.is_inference() else int(self.native._version)

    @property
    def differentiable(self) -> bool:
        """Return whether a gradient can reach it."""
        return bool(self.native.requires_grad)

    def numpy(self) -> Array:
        """Return a snapshot in C order: one copy."""
        host = _host(self.native)
        if host.data_ptr() != _address(self.native):
            return _exposed(host)
        return _exposed(host).copy(order="C")

    def view(self) -> Array:
        """Return the values, without a copy for ordinary tensors on the CPU."""
        return numpy_view(self.native)

    def writable(self) -> Array | None:
        """Return an array over the tensor's own memory, or None where numpy cannot see it."""
        return None if _address(self.native) is None else _exposed(self.native.detach())

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back with the complete gradient of the value that the tensor holds now.

        A later in-place change does not disturb it: torch keeps the hook with the value, not with the object.
        """
        return Hook(self.native.register_hook(lambda gradient: callback(TorchTensor(gradient))).remove)

    def swapped(self, array: Array) -> Any:
        """Return a tensor with the array's bits through which gradients pass unchanged: one copy."""
        native = self.native
        like = _dense(native.detach())
        # preserve_format: channels_last stays channels_last, and with it the kernel that the model would run.
        fresh = filled(torch.empty_like(like, memory_format=torch.preserve_format), array)
        if native.requires_grad and torch.is_grad_enabled():
            return _Swap.apply(native, [fresh])
        return fresh


def _address(native: Any) -> int | None:
    """Return where a tensor's values lie if numpy can see them there; None where `_host` copies them."""
    if native.device.type != "cpu" or native.layout is not torch.strided or native.dtype in _WIDENED:
        return None
    if native.is_nested or native.is_quantized or native.is_conj() or native.is_neg():
        return None
    return int(native.data_ptr())
