"""Wrap torch modules: their tree, their parameters, and how they run and come back as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from padiff.adapter import (
    Array,
    HookedModel,
    LiftError,
    Listener,
    Module,
    Ranks,
    TensorParameter,
    UnwatchableModel,
    handed_on,
    qualified_name,
)
from padiff_torch import state
from padiff_torch.distributed.numbers import numbered
from padiff_torch.distributed.separate_bias import mark
from padiff_torch.recompute import recorded_at_once
from padiff_torch.tensor import TorchTensor, filled, laid_out_as
from padiff_torch.versions import TORCH

# Packages whose modules keep their weights packed, out of reach of a change of dtype.
_PACKED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "bitsandbytes")


class TorchParameter(TensorParameter):
    """A parameter or a buffer of a `torch.nn.Module`."""

    tensor = TorchTensor

    def assign(self, array: Array) -> None:
        """Overwrite the values in place; raises ``ValueError`` where the shapes differ."""
        array = self.fitting(array)
        with torch.inference_mode(self.native.is_inference()):
            filled(self.native.data, array)

    def thaw(self) -> None:
        """Let it get a gradient."""
        if self.native.is_leaf and self.native.is_floating_point() and not self.native.is_inference():
            self.native.requires_grad_()

    def set_gradient(self, array: Array | None) -> None:
        """Replace the gradient; raises ``ValueError`` where the shapes differ."""
        self.native.grad = None if array is None else filled(torch.empty_like(self.native.data), self.fitting(array))

    def unready(self) -> tuple[str, str] | None:
        """Return why it has no values yet: lazy, or on the meta device."""
        if torch.nn.parameter.is_lazy(self.native):
            what = f"is a {type(self.native).__name__}: it has no shape before a first run"
            return what, "call the model once on an input, to build its lazy modules,"
        if self.native.is_meta:
            return "is on the meta device and has no values", "model.to_empty(device='cpu') and load its weights"
        return None


class TorchModel(HookedModel):
    """A `torch.nn.Module` as a model; raises `UnwatchableModel` where hooks would be ignored."""

    parameter = TorchParameter
    tables = ("_buffers", "_non_persistent_buffers_set")
    base = torch.nn.Module
    state = state

    def children(self, native: Any) -> Iterable[tuple[str, Any]]:
        """Return the modules that a module holds."""
        return numbered(native)

    def tensors(self, native: Any) -> Iterable[tuple[str, Any, bool]]:
        """Return the parameters and buffers that a module holds."""
        for tensors, buffer in ((native._parameters, False), (native._buffers, True)):
            yield from ((name, tensor, buffer) for name, tensor in tensors.items() if tensor is not None)

    def trouble(self, native: Any) -> tuple[str, str] | None:
        """Return what keeps a module's hooks from running."""
        if not isinstance(native, torch.nn.Module):
            return "is not a torch.nn.Module", "pass the module itself; wrap a function in a torch.nn.Module"
        found = _trouble(native)
        return found and (f"{found[0]}, so hooks on it would be silently ignored", found[1])

    def register(self, native: Any, name: str, end: Callable[..., Any]) -> Callable[[], Any]:
        """Register a hook, which a script's torch.compile around the model calls and does not trace."""
        return super().register(native, name, TORCH.untraced(end))

    def enter(self, listener: Listener, module: Module, native: Any, args: Any, kwargs: Any) -> Any:
        """Report that a call begins; raise `UnwatchableModel` while a graph is captured: nothing has values."""
        if not module.path and TORCH.is_capturing():
            msg = "the model is called while a CUDA graph is captured: nothing has values, and replays run no hooks.\n"
            msg += "Hint: let it run without the graph while it is watched."
            raise UnwatchableModel(msg)
        return super().enter(listener, module, native, args, kwargs)

    def leave(self, listener: Listener, module: Module, native: Any, args: Any, kwargs: Any, output: Any) -> Any:
        """Report that a call ended; of a linear layer that hands its bias on, that its output lacks it."""
        if module.kind == "linear":
            mark(native, output)
        return super().leave(listener, module, native, args, kwargs, output)

    def repeated(self) -> bool:
        """Return whether activation checkpointing calls modules again, from within the backward pass.

        Nor is a call within ``vmap`` or its like one call: its tensors stand for many, and have no values.
        """
        return TORCH.in_backward() or bool(TORCH.within_transform())

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model with grad mode on, and run backward from what ``differentiate(output)`` returns."""
        self.forget()
        with torch.inference_mode(False), torch.enable_grad(), TORCH.ordinary_attention(), recorded_at_once():
            output = self.invoked(*args, **kwargs)
            if differentiate is not None:
                pairs = [(tensor, grad) for tensor, grad in differentiate(output) if tensor.requires_grad]
                if pairs:
                    self.differentiated(pairs)
        return output

    def forget(self) -> None:
        """Drop the gradients of earlier passes."""
        for parameter in self.native.parameters():
            parameter.grad = None

    def invoked(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return handed_on(self.native, args, kwargs)

    def differentiated(self, starts: Sequence[tuple[Any, Any | None]]) -> None:
        """Run backward from tensors, each with its gradient."""
        tensors, gradients = zip(*starts, strict=True)
        if any(gradient is None for gradient in gradients):
            torch.autograd.backward(tensors, gradients)
        else:
            torch.autograd.backward(_Start.apply(torch.empty(()), gradients, *tensors))

    def ranks(self) -> Ranks | None:
        """Return what this process is among the ranks of its job."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return None
        from padiff_torch.distributed.ranks import ranks_of

        return ranks_of(self)

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold floating tensors in ``dtype``; raises `LiftError` where weights are packed."""
        for path, module in self.natives():
            if type(module).__module__.startswith(_PACKED):
                msg = f"{path!r} ({qualified_name(module)}) is quantized: packed weights have no wider form\n"
                msg += "Hint: compare the model before quantization"
                raise LiftError(msg)
        return super().lifted(dtype)


class _Start(torch.autograd.Function):
    """A scalar behind the tensors that backward starts from.

    Given gradients itself, torch compares their shapes by what it imports then: sympy, for a second.
    """

    @staticmethod
    def forward(ctx: Any, scalar: Any, gradients: Sequence[Any], *tensors: Any) -> Any:
        """Keep the gradients that the tensors get."""
        ctx.gradients = [laid_out_as(tensor, one) for tensor, one in zip(tensors, gradients, strict=True)]
        return scalar

    @staticmethod
    def backward(ctx: Any, _: Any) -> tuple[Any, ...]:
        """Hand each tensor its gradient."""
        return None, None, *ctx.gradients


def _trouble(module: Any) -> tuple[str, str] | None:
    """Return what keeps a module's hooks from running, and what to do about it."""
    if isinstance(module, torch.jit.ScriptModule):
        return "is a TorchScript module", "pass the Python module that it was scripted or traced from"
    if hasattr(module, "_orig_mod"):
        return "is compiled by torch.compile", "pass the original, `model._orig_mod`"
    if getattr(module, "_compiled_call_impl", None) is not None:
        return "is compiled in place by `.compile()`", "build the model anew, without `.compile()`"
    forward = module.forward
    if getattr(forward, "__module__", None) == "torch.cuda.graphs":
        return "is run as a CUDA graph by make_graphed_callables", "build the model anew, without it"
    if hasattr(forward, "_torchdynamo_orig_callable") and not getattr(forward, "_torchdynamo_disable", False):
        return "has a forward compiled by torch.compile", "set TORCH_COMPILE_DISABLE=1"
    if isinstance(module, torch.nn.DataParallel) and len(module.device_ids) > 1:
        return "runs copies of itself in threads", "pass the model it wraps, `model.module`"
    return None
