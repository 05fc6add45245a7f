"""A device for torch that is none: its tensors say that they lie on ``npu:0``, and are computed in the CPU's memory.

Made of what torch has for backends that are written in Python. It shows that the lines of the adapter that are about
devices run, values and gradients among them; nothing of what a real device rounds or forbids. A process that imports
this has the device until it ends: ``test_torch_devices.py`` starts one of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

__all__ = ["DEVICE", "Generators"]

DEVICE = "npu:0"


class Generators:
    """The module ``torch.npu``: random generators, which the CPU's stand in for."""

    state = torch.arange(4, dtype=torch.uint8)
    """What `get_rng_state_all` gives."""

    coarse = False
    """Whether matrices are multiplied as in TF32: of each factor ten bits behind the point are read."""

    def __getattr__(self, name: str) -> Any:
        answers = {"is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0}
        if name in answers:
            return lambda: answers[name]
        if name == "synchronize":
            return lambda device=None: None
        if name in ("manual_seed", "manual_seed_all"):
            return self._seed
        if name in ("get_rng_state_all", "_is_in_bad_fork"):
            return lambda: [type(self).state.clone()] if name != "_is_in_bad_fork" else False
        raise AttributeError(name)

    def set_rng_state_all(self, states: list[Any]) -> None:
        """Put states back."""
        (type(self).state,) = states

    def _seed(self, seed: int) -> None:
        type(self).state = torch.full((4,), seed % 256, dtype=torch.uint8)


class Far(torch.Tensor):
    """A tensor that says that it lies on the device; its values lie in ``near``."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near: Any, requires_grad: bool = False) -> Any:
        """Return one over a tensor of the CPU's."""
        return torch.Tensor._make_wrapper_subclass(
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=DEVICE,
            requires_grad=requires_grad,
        )

    def __init__(self, near: Any, requires_grad: bool = False) -> None:
        self.near = near

    @property
    def data(self) -> Any:
        """Return it without its history."""
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, other: Any) -> None:
        """Hold another one's values: torch knows of the type and the shape alone."""
        torch.Tensor.data.__set__(self, other)
        self.near = other.near

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute in the CPU's memory."""
        return _computed(function, *args, **(kwargs or {}))


def _near(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.near if isinstance(value, Far) else value


_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"}


def _rounded(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    return ((value.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


def _computed(function: Any, *args: Any, **kwargs: Any) -> Any:
    given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Far)]
    near_args, near_kwargs = tree_map(_near, (args, kwargs))
    if Generators.coarse and given and function._schema.name.removeprefix("aten::") in _PRODUCTS:
        near_args = tuple(map(_rounded, near_args))
    with _disable_current_modes():
        found = function(*near_args, **near_kwargs)
    if function._schema.name.endswith("_"):
        return args[0]
    place = kwargs.get("device")
    if (not given and place is None) or (place is not None and torch.device(place).type == "cpu"):
        return found
    known = {id(one.near): one for one in given}

    def held(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return known[id(one)] if id(one) in known else Far(one)

    return tree_map(held, found)


_setup_privateuseone_for_python_backend("npu", Generators())
_LIBRARY = torch.library.Library("_", "IMPL")
_LIBRARY.fallback(_computed, "PrivateUse1")
