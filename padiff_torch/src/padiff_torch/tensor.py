"""Wrap torch tensors, and carry values between torch and numpy bit for bit.

numpy knows neither bfloat16 nor fp8: these are viewed as ml_dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from padiff.adapter import (
    Array,
    Dtypes,
    Extent,
    Hook,
    InputError,
    NativeTensor,
    Reducer,
    Reduction,
    Tensor,
    array_at,
    dtypes,
    handed_on,
)

_DTYPES = Dtypes("torch", torch)
native_dtype = _DTYPES.native

# What has no counterpart in numpy, and the dtype that holds its values exactly.
_WIDENED = {torch.complex32: torch.complex64}


def dtype_name(native: Any) -> str:
    """Return the numpy or ml_dtypes name of a native tensor's dtype; quantized tensors read as float32."""
    return "float32" if native.is_quantized else _DTYPES.name(_WIDENED.get(native.dtype, native.dtype))


def device_name(native: Any) -> str:
    """Return the device of a native tensor: ``cpu``, ``cuda:0``."""
    return str(native.device)


def _dense(native: Any) -> Any:
    """Return an ordinary strided tensor with the same values: the same object for ordinary tensors.

    Of a DTensor, what lies on this rank: no rank asks another.
    """
    if type(native).__name__ == "DTensor":
        return native.to_local()
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
    tensor = handed_on(_dense(native.detach()).cpu).resolve_conj().resolve_neg()
    return tensor.to(_WIDENED[tensor.dtype]) if tensor.dtype in _WIDENED else tensor


def _exposed(tensor: Any) -> Array:
    """Return the memory of a plain CPU tensor as numpy sees it, never copied.

    ``tensor.numpy()`` would forbid torch to resize it for good, and FSDP frees so what it gathered.
    """
    dtype = dtypes.numpy_dtype(_DTYPES.name(tensor.dtype))
    plain = tensor if tensor.data_ptr() or type(tensor) is torch.Tensor else tensor.clone()  # what wraps another one
    if not plain.data_ptr():
        if plain.numel():
            msg = f"a {type(plain).__name__} of shape {tuple(plain.shape)} has no values: it only stands for some, "
            msg += "or they were freed before they were read"
            raise InputError(msg)
        return np.zeros(tuple(tensor.shape), dtype)
    return array_at(plain, plain.data_ptr(), dtype, plain.shape, plain.stride())


def array_of(native: Any) -> Array:
    """Return a tensor's values, without a copy for ordinary tensors on the CPU."""
    return _exposed(_host(native))


def filled(native: Any, array: Array) -> Any:
    """Overwrite an ordinary tensor with an array of its shape, in place and converted to its dtype; return it.

    numpy writes into the tensor's memory rather than torch reading the array's: so read-only, byte-swapped
    and strided arrays need no copy of their own.
    """
    with torch.no_grad():
        if _address(native) is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                np.copyto(_exposed(native.detach()), array, casting="unsafe")
        else:
            native.copy_(from_array(array))
    return native


def from_array(array: Array, device: str = "cpu") -> Any:
    """Return a tensor on a device with a copy of the array, in the array's dtype.

    In memory of torch's own: its kernels may round otherwise where data is aligned otherwise.
    """
    with torch.inference_mode(False):
        return filled(torch.empty(array.shape, dtype=native_dtype(array.dtype.name)), array).to(device)


def copied(native: Any, device: str) -> Any:
    """Return a copy of a tensor on a device, without its history."""
    with torch.inference_mode(False):
        return native.detach().to(device, copy=True)


def leaf(native: Any) -> Any:
    """Return a new tensor as one that collects gradients."""
    return native.requires_grad_()


def laid_out_as(native: Any, gradient: Any) -> Any:
    """Return a gradient with the strides of a tensor of its shape: backward kernels are chosen by the layouts.

    Batch norm's of torch 2.13 gives wrong values on the CPU where one is contiguous, and the other in channels_last
    with an axis of one element.
    """
    if _dense(native) is not native or native.shape != gradient.shape or native.stride() == gradient.stride():
        return gradient
    return torch.empty_like(native.detach(), dtype=gradient.dtype, device=gradient.device).copy_(gradient)


class _Swap(torch.autograd.Function):
    """What gives another value forward, and passes the gradient through backward."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, box: list[Any]) -> Any:
        # Boxed: a tensor argument that is returned counts as a view, and a view made by a custom function
        # refuses in-place changes: an in-place ReLU would raise.
        return box.pop()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, None]:
        return gradient, None


class TorchTensor(NativeTensor):
    """A `torch.Tensor`, wrapped."""

    __slots__ = ()
    dtype_name, device_name, array_of = staticmethod(dtype_name), staticmethod(device_name), staticmethod(array_of)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape; of a nested tensor, that of the padded one; of a DTensor, that of this rank's part."""
        plain = not self.native.is_nested and type(self.native).__name__ != "DTensor"
        return tuple(self.native.shape if plain else _dense(self.native).shape)

    @property
    def place(self) -> tuple[str, tuple[int, ...] | None]:
        """Return the device, and where it is not laid out in C order the axes from the slowest to the fastest."""
        native = self.native
        if native.layout is not torch.strided or native.is_nested or native.is_contiguous() or 0 in native.stride():
            return self.device, None
        return self.device, tuple(sorted(range(native.dim()), key=lambda axis: -native.stride(axis)))

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

    def reduce(self, reducer: Reducer, reduction: Reduction, *, steady: bool = False) -> bool:
        """Let few numbers be computed on the device where it lies."""
        return reducer.add(self.native, reduction, steady=steady)

    def writable(self) -> Array | None:
        """Return an array over the tensor's own memory, or None where numpy cannot see it."""
        return None if _address(self.native) is None else _exposed(self.native.detach())

    def extent(self) -> Extent | None:
        """Return the addresses of its memory: of what is contiguous without an array over it, which takes longest."""
        native = self.native
        start = _address(native)
        if start is None or not native.numel():
            return None
        return (start, start + native.nbytes) if native.is_contiguous() else super().extent()

    def on_gradient(self, callback: Callable[[Tensor], Any | None]) -> Hook:
        """Call back with the complete gradient of the value that the tensor holds now.

        A later in-place change does not disturb it: torch keeps the hook with the value, not with the object. Where it
        is made through another view, though, torch forgets this one, and the gradient comes to what both are views of:
        a linear layer gives a view of its product. Torch calls the hook with None where a function's backward pass
        returns that: no gradient came.
        """
        native, came = self.native, [False]

        def arrived(gradient: Any) -> Any | None:
            if gradient is None:
                return None
            came[0] = True
            found = callback(TorchTensor(gradient))
            return None if found is None else laid_out_as(gradient, found)

        hook = Hook(native.register_hook(arrived).remove)
        base = native._base
        if base is not None and base.requires_grad and _is_whole(native, base):
            shape = native.shape

            def passed(gradient: Any) -> Any | None:
                found = None if came[0] or gradient is None else callback(TorchTensor(gradient.reshape(shape)))
                came[0] = False
                return None if found is None else found.reshape(gradient.shape)

            hook.add(base.register_hook(passed).remove)
        return hook

    def swapped(self, array: Array) -> Any:
        """Return a tensor with the array's bits through which gradients pass unchanged: one copy."""
        native, array = self.native, self.fitting(array)
        # Whatever mode the caller is in: a tensor that collects gradients does so under its no_grad as well.
        with torch.inference_mode(native.is_inference()), torch.enable_grad():
            like = _dense(native.detach())
            # preserve_format: channels_last stays channels_last, and with it the kernel that the model would run.
            fresh = filled(torch.empty_like(like, memory_format=torch.preserve_format), array)
            return _Swap.apply(native, [fresh]) if native.requires_grad else fresh


def _is_whole(native: Any, base: Any) -> bool:
    """Return whether a view holds all elements of what it is a view of, in the same order."""
    return bool(native.numel() == base.numel() and native.is_contiguous() and base.is_contiguous())


def _address(native: Any) -> int | None:
    """Return where a tensor's values lie if numpy can see them there; None where `_host` copies them."""
    if native.device.type != "cpu" or native.layout is not torch.strided or native.dtype in _WIDENED:
        return None
    if native.is_nested or native.is_quantized or native.is_conj() or native.is_neg():
        return None
    if type(native).__name__ == "DTensor":
        return None
    if native.numel() and not native.data_ptr():
        return None  # it wraps another one, or its memory was freed
    return int(native.data_ptr())
