"""Wrap torch modules: their tree, their parameters, and how they run and come back as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from padiff.adapter import Adapter, Hear, Hook, Listener, Model, Module, Parameter
from padiff.errors import InputError, UnwatchableModel
from padiff_torch import state
from padiff_torch.operations import hear_functions
from padiff_torch.tensor import device_name, dtype_name, filled, numpy_view

__all__ = ["TorchModel", "TorchModule", "TorchParameter"]

Array = NDArray[Any]


class TorchModule(Module):
    """Wrap a `torch.nn.Module`."""

    @property
    def training(self) -> bool:
        """Return whether the module is in training mode."""
        return bool(self.native.training)

    @property
    def forward(self) -> Callable[..., Any]:
        """Return the bound ``forward``."""
        return self.native.forward


class TorchParameter(Parameter):
    """Wrap a parameter or a buffer; raises `InputError` where a lazy one has no values yet."""

    @property
    def dtype(self) -> str:
        """Return the dtype's numpy or ml_dtypes name."""
        return dtype_name(self.native)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(self._ready().shape)

    @property
    def trainable(self) -> bool:
        """Return whether it gets a gradient."""
        return bool(self.native.requires_grad)

    def view(self) -> Array:
        """Return the values, without a copy on the CPU."""
        return numpy_view(self._ready())

    def assign(self, array: Array) -> None:
        """Overwrite the values in place; raises ``ValueError`` where the shapes differ."""
        self._fitting(array)
        with torch.inference_mode(self.native.is_inference()):
            filled(self.native.data, array)

    def gradient(self) -> Array | None:
        """Return the gradient, dense, or None."""
        return None if self.native.grad is None else numpy_view(self.native.grad)

    def set_gradient(self, array: Array | None) -> None:
        """Replace the gradient; raises ``ValueError`` where the shapes differ."""
        if array is None:
            self.native.grad = None
            return
        self._fitting(array)
        self.native.grad = filled(torch.empty_like(self.native.data), array)

    def _fitting(self, array: Array) -> None:
        if self.shape != array.shape:
            msg = f"an array of shape {array.shape} does not fit {self.path!r} of shape {self.shape}"
            raise ValueError(msg)

    def _ready(self) -> Any:
        if torch.nn.parameter.is_lazy(self.native):
            msg = f"{self.path!r} is a {type(self.native).__name__}: it has no shape before a first run"
            msg += "\nHint: call the model once on an input before the diff, to build its lazy modules"
            raise InputError(msg)
        return self.native


class TorchModel(Model):
    """Wrap a model; raises `UnwatchableModel` where hooks would be ignored."""

    def __init__(self, native: Any, adapter: Adapter) -> None:
        _require_watchable(native)
        super().__init__(native, adapter)
        self._known: dict[int, TorchModule] = {}

    def modules(self) -> Mapping[str, Module]:
        """Return every module once, by its first path; the wrappers stay the same from call to call."""
        return {path: self._wrapped(path, module) for path, module in self.native.named_modules()}

    def _wrapped(self, path: str, module: Any) -> TorchModule:
        known = self._known.get(id(module))
        if known is None or known.native is not module or known.path != path:
            known = self._known[id(module)] = TorchModule(path, module, self.adapter.rule(module))
        return known

    def parameters(self) -> Mapping[str, Parameter]:
        """Return every parameter and buffer once, module by module in the order of registration."""
        found: dict[int, tuple[Any, bool, list[str]]] = {}
        for prefix, module in self.native.named_modules(remove_duplicate=False):
            for tensors, buffer in ((module._parameters, False), (module._buffers, True)):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        paths = found.setdefault(id(tensor), (tensor, buffer, []))[2]
                        paths.append(f"{prefix}.{name}" if prefix else name)
        return {
            paths[0]: TorchParameter(paths[0], tensor, buffer=buffer, paths=tuple(paths))
            for tensor, buffer, paths in found.values()
        }

    @property
    def device(self) -> str:
        """Return where the parameters and buffers lie."""
        places = {device_name(parameter.native) for parameter in self.parameters().values()}
        return ",".join(sorted(places)) or "cpu"

    def attach(self, listener: Listener) -> Hook:
        """Report every module's calls, as the hooks that were registered earlier left them."""
        _require_watchable(self.native)
        hook = Hook()
        try:
            for module in self.modules().values():
                enter, leave = partial(_enter, listener, module), partial(_leave, listener, module)
                hook.add(module.native.register_forward_pre_hook(enter, with_kwargs=True).remove)
                hook.add(module.native.register_forward_hook(leave, with_kwargs=True).remove)
        except BaseException:
            hook.close()
            raise
        return hook

    def hear_operations(self, hear: Hear) -> Hook:
        """Let ``hear`` be called in place of torch's functions until the hook is closed."""
        return hear_functions(hear)

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        differentiate: Callable[[Any], list[tuple[Any, Any | None]]] | None = None,
    ) -> Any:
        """Call the model with grad mode on, and run backward from what ``differentiate(output)`` returns."""
        for parameter in self.native.parameters():
            parameter.grad = None
        with torch.inference_mode(False), torch.enable_grad(), _ordinary_attention():
            output = self.native(*args, **kwargs)
            if differentiate is not None:
                pairs = [(tensor, grad) for tensor, grad in differentiate(output) if tensor.requires_grad]
                if pairs:
                    torch.autograd.backward([tensor for tensor, _ in pairs], [grad for _, grad in pairs])
        return output

    def preserved(self) -> AbstractContextManager[None]:
        """Put back gradients, requires_grad, modes, buffers and plain attributes on leaving."""
        return state.preserved(self.native)

    def evaluate(self) -> None:
        """Put every module into evaluation mode."""
        self.native.eval()

    def lifted(self, dtype: str) -> AbstractContextManager[None]:
        """Hold floating parameters, buffers and tensor attributes in ``dtype``, the default dtype too."""
        return state.lifted(self.native, dtype)


# Watching ---------------------------------------------------------------------------------------------------


def _recomputing() -> bool:
    # Activation checkpointing calls modules again from within the backward pass: no call of the model's own.
    return bool(torch._C._current_graph_task_id() >= 0)


def _enter(listener: Listener, module: Module, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return None if _recomputing() else listener.enter(module, args, kwargs)


def _leave(
    listener: Listener, module: Module, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> Any:
    return None if _recomputing() else listener.leave(module, args, kwargs, output)


def _require_watchable(native: Any) -> None:
    """Raise `UnwatchableModel` where a module below would not run its hooks, and say what to pass instead."""
    if not isinstance(native, torch.nn.Module):
        msg = f"{type(native).__module__}.{type(native).__qualname__} is not a torch.nn.Module"
        msg += "\nHint: pass the module itself; wrap a function in a torch.nn.Module"
        raise UnwatchableModel(msg)
    for path, module in native.named_modules():
        trouble = _trouble(module)
        if trouble:
            name = f"{type(module).__module__}.{type(module).__qualname__}"
            where = f"the submodule {path!r} ({name})" if path else f"the model ({name})"
            msg = f"{where} {trouble[0]}, so hooks on it would be silently ignored\nHint: {trouble[1]}"
            raise UnwatchableModel(msg)


def _trouble(module: Any) -> tuple[str, str] | None:
    """Return what keeps a module's hooks from running, and what to do about it."""
    if isinstance(module, torch.jit.ScriptModule):
        return "is a TorchScript module", "pass the Python module that it was scripted or traced from"
    if hasattr(module, "_orig_mod"):
        return "is compiled by torch.compile", "pass the original, `model._orig_mod`"
    if getattr(module, "_compiled_call_impl", None) is not None:
        return "is compiled in place by `.compile()`", "build the model anew, without `.compile()`"
    forward = module.forward
    if hasattr(forward, "_torchdynamo_orig_callable") and not getattr(forward, "_torchdynamo_disable", False):
        return "has a forward compiled by torch.compile", "set TORCH_COMPILE_DISABLE=1"
    if isinstance(module, torch.nn.DataParallel) and len(module.device_ids) > 1:
        return "runs copies of itself in threads", "pass the model it wraps, `model.module`"
    return None


@contextmanager
def _ordinary_attention() -> Iterator[None]:
    """Keep torch from its fused inference path for attention, which calls no submodules and nests tensors.

    Training code never takes it; in a run it would depend on requires_grad and on whether hooks are there.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
