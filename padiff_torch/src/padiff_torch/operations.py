"""Intercept the functions that torch runs, and let one be called by a module."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from padiff.adapter import CallsFunction, Hook, Intercept, handed_on
from padiff_torch.versions import TORCH

_LEFT_ALONE = frozenset({"__get__", "__set__", "__delete__"})
"""What reads or writes an attribute of a tensor."""
_MADE_OF_IT = frozenset({"T", "mT", "H", "mH", "real", "imag"})
"""Attributes that are operations: a view of the tensor."""
_PREFIXES = {"TensorBase": "torch.Tensor", "Tensor": "torch.Tensor", "_VariableFunctionsClass": "torch"}


class Calling(CallsFunction, torch.nn.Module):
    """A module that calls a function."""


class _Mode(TorchFunctionMode):
    """A mode that leads the functions of torch that the user's code calls to ``intercept``, none inside of them."""

    def __init__(self, intercept: Intercept) -> None:
        super().__init__()
        self._intercept = intercept

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Within vmap and its like tensors have no values of their own.
        if _is_left_alone(function) or TORCH.within_transform():
            return handed_on(function, args, kwargs or {})
        return self._intercept(function, _name(function), args, kwargs or {})


def intercept_functions(model: Any, intercept: Intercept) -> Hook:
    """Let ``intercept`` be called in place of torch's functions, in whatever code, until the hook is closed.

    A script's torch.compile calls the mode and does not trace it.
    """
    untraced = TORCH.untraced(_Mode.__torch_function__)
    mode = type(_Mode.__name__, (_Mode,), {"__torch_function__": untraced})(intercept)
    mode.__enter__()
    return Hook(lambda: TORCH.take_out(mode))


def _is_left_alone(function: Any) -> bool:
    attribute = getattr(getattr(function, "__self__", None), "__name__", None)
    return getattr(function, "__name__", "__get__") in _LEFT_ALONE and attribute not in _MADE_OF_IT


@lru_cache(maxsize=4096)
def _name(function: Any) -> str:
    """Return a function's full name; to tell it torch exchanges the filters of warnings each time."""
    known = resolve_name(function)
    if known is not None:
        return str(known).removesuffix(".__get__")
    home, _, name = str(getattr(function, "__qualname__", function.__name__)).rpartition(".")
    return f"{_PREFIXES.get(home, getattr(function, '__module__', None) or 'torch')}.{name}"
