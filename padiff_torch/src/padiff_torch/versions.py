"""Know what the installed torch offers: the one room of this adapter that knows that versions differ.

What differs is looked for, never concluded from a version's number. Of torch's private interfaces those stand here that
no public one replaces, each with its reason, and with what padiff does where it is gone.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

from padiff.adapter import AdapterError, Offer, Offers, given_to, handed_on, switched

OFFERS: Mapping[str, Offer] = {
    "attention switch": Offer(
        "backends.mha.set_fastpath_enabled",
        "attention is kept from its fused path by a function mode, which that path avoids",
    ),
    "casts by device": Offer(
        "get_autocast_dtype",
        "automatic casts are asked for by functions of each device",
    ),
    "accelerators": Offer(
        "accelerator.current_accelerator",
        "generators of all devices are seeded, also where there is none",
    ),
    "graph task": Offer(
        "_C._current_graph_task_id",
        "calls that activation checkpointing repeats are reported again",
        capability="recomputation",
        reason="torch.utils.checkpoint itself asks so whether the backward pass runs",
    ),
    "checkpoint": Offer(
        "utils.checkpoint._checkpoint_without_reentrant_generator",
        "what a checkpoint computes again is not what was fed to it",
        capability="recomputation",
        reason="a hook on saved tensors sees neither the function nor its arguments",
    ),
    "transforms": Offer(
        "_C._functorch.peek_interpreter_stack",
        "the operations of a model's own code are not seen",
        capability="operations",
        reason="within vmap tensors have no values, and nothing public tells",
    ),
    "modes": Offer(
        "overrides._pop_mode",
        "a function mode that a model leaves open is closed with padiff's",
        reason="a mode is left in the order of the stack alone",
    ),
}
"""What versions differ in, by the name under which the rest asks for it."""

NEEDED: Mapping[str, str | None] = {
    "nn.Module.register_forward_pre_hook": "with_kwargs",
    "nn.Module.register_forward_hook": "with_kwargs",
}
"""A function below ``torch`` -> the parameter without which padiff cannot work at all."""
OLDEST = "2.1"

PRIVATE: Mapping[str, str] = {
    "_modules": "named_children() tells a child that hangs under two names once",
    "_parameters": "parametrized and partitioned modules answer the public ones with other tensors",
    "_buffers": "as _parameters",
    "_base": "whether a tensor is a view, and of what, has no public name",
    "_version": "the count of changes in place, which torch's own errors speak of, has no public name",
    "_get_fsdp_state": "what fully_shard() shards, and along which axis of a mesh, has no public name; newer versions",
    "_module_info": "where a parameter of fully_shard() hangs, while it is gathered",
    **dict.fromkeys(
        ("_handle", "_fsdp_wrapped_module", "_params", "_param_infos", "_shared_param_infos", "_shard_param_infos"),
        "FullyShardedDataParallel says of no parameter where it lies in a flat one",
    ),
    **dict.fromkeys(
        ("_shapes", "_numels_with_padding", "_is_padding_mask", "_use_orig_params"),
        "as _handle",
    ),
}
"""Names of attributes that the adapter reads wherever it meets a module or a tensor -> why; all versions have them."""


class Torch(Offers):
    """What one version of torch offers, as the rest of the adapter asks for it."""

    def __init__(self, home: Any = torch) -> None:
        super().__init__("torch", home, OFFERS, NEEDED, OLDEST)
        generator = self.held["checkpoint"]
        self._checkpoint = None if generator is None else inspect.signature(generator)
        task = self.held["graph task"]
        self.in_backward: Callable[[], bool] = (lambda: False) if task is None else (lambda: task() >= 0)
        """Whether this code runs within a backward pass."""
        self.backward_pass: Callable[[], int | None] = (lambda: None) if task is None else task
        """Which one that is."""
        self.within_transform: Callable[[], Any] = self.held["transforms"] or (lambda: False)
        """Whether this code runs within vmap or its like."""

    def check(self) -> None:
        """Raise `AdapterError` where padiff cannot work with it at all."""
        super().check()
        try:
            self.home.zeros(1).numpy()
        except RuntimeError as error:
            msg = f"torch {self.version} cannot pass values to numpy {np.__version__} ({error}).\n"
            msg += "Hint: torch 2.2 and older need numpy 1: pip install 'numpy<2'."
            raise AdapterError(msg) from error

    def ordinary_attention(self) -> AbstractContextManager[Any]:
        """Keep torch from its fused inference path for attention, which calls no submodules and nests tensors.

        Training code never takes it; in a run it would depend on requires_grad and on whether hooks are there.
        """
        if self.held["attention switch"] is None:
            return _Ordinary()
        mha = self.home.backends.mha
        return switched(mha.get_fastpath_enabled, mha.set_fastpath_enabled, False)

    def casts(self) -> list[tuple[str, Any]]:
        """Return the kinds of devices on which automatic casts are on now, each with its dtype."""
        home, kinds = self.home, dict.fromkeys(("cpu", "cuda", self.accelerator() or "cuda"))
        if self.held["casts by device"] is not None:
            return [(kind, home.get_autocast_dtype(kind)) for kind in kinds if home.is_autocast_enabled(kind)]
        by_device = {
            "cpu": (home.is_autocast_cpu_enabled, home.get_autocast_cpu_dtype),
            "cuda": (home.is_autocast_enabled, home.get_autocast_gpu_dtype),
        }
        return [(kind, dtype()) for kind, (on, dtype) in by_device.items() if on()]

    def is_host_only(self) -> bool:
        """Return whether it knows no device but the CPU, as far as it tells."""
        return self.held["accelerators"] is not None and self.accelerator() is None

    def accelerator(self) -> str | None:
        """Return the kind of this machine's devices: ``cuda``, ``npu``; None where there is none, or it cannot tell."""
        current = self.held["accelerators"]
        found = None if current is None else current()
        return None if found is None else str(found.type)

    def products(self) -> dict[str, str]:
        """Return in which precision products of float32 matrices, convolutions and recurrent kernels are computed.

        Since 2.9 each has a switch of its own, and the older ones raise where the newer are used otherwise.
        """
        backends = self.home.backends
        owners = {"matrices": backends.cuda.matmul}
        owners |= {
            name: owner
            for name, key in (("convolutions", "conv"), ("recurrent layers", "rnn"))
            if (owner := getattr(backends.cudnn, key, None)) is not None
        }
        if hasattr(backends.cuda.matmul, "fp32_precision"):
            return {name: str(owner.fp32_precision) for name, owner in owners.items()}
        matrices, rest = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
        found = {"matrices": matrices, "convolutions": rest, "recurrent layers": rest}
        return {name: "tf32" if on else "ieee" for name, on in found.items()}

    def is_capturing(self) -> bool:
        """Return whether what runs now is captured as a CUDA graph."""
        cuda = self.home.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def generators(self) -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
        """Return what reads and what sets the states of random generators of devices: of those that are in use."""
        found: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = []
        for name in dict.fromkeys(("cuda", self.accelerator() or "cuda")):
            module: Any = getattr(self.home, name, None)
            end = "_all" if hasattr(module, "get_rng_state_all") else ""
            read, write = (getattr(module, f"{verb}_rng_state{end}", None) for verb in ("get", "set"))
            if read is not None and write is not None and getattr(module, "is_initialized", module.is_available)():
                found.append((read, write))
        return found

    def checkpointed(self, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, bool, Any, Any]:
        """Return what torch gave its generator of checkpoints: function, whether to keep random states, arguments."""
        assert self._checkpoint is not None
        return given_to(self._checkpoint, given, named)

    @staticmethod
    def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that torch.compile calls, where it is in use, and does not trace."""
        dynamo = sys.modules.get("torch._dynamo")
        found: Callable[..., Any] = function if dynamo is None else dynamo.disable(function)
        return found

    def take_out(self, mode: Any) -> None:
        """End a function mode wherever it lies among others: one that the user's code has opened since stays open."""
        overrides = self.home.overrides
        if self.held["modes"] is None:
            mode.__exit__(None, None, None)
            return
        above = []
        while overrides._len_torch_function_stack() and (last := overrides._pop_mode()) is not mode:
            above.append(last)
        for one in reversed(above):
            overrides._push_mode(one)


class _Ordinary(TorchFunctionMode):
    """A mode that changes nothing: where one is on, modules of attention call their parts one by one."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return handed_on(function, args, kwargs or {})


TORCH = Torch()
"""The one that is installed."""
