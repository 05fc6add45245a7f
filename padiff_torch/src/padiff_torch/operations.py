"""Hear the functions that torch runs, and let one be called by a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from padiff.adapter import Hear, Hook

__all__ = ["Calling", "hear_functions"]

_UNHEARD = frozenset({"__get__", "__set__", "__delete__"})
"""What reads or writes an attribute of a tensor."""
_PREFIXES = {"TensorBase": "torch.Tensor", "Tensor": "torch.Tensor", "_VariableFunctionsClass": "torch"}


class Calling(torch.nn.Module):
    """Call a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns."""
        return self.function(*args, **kwargs)


class _Mode(TorchFunctionMode):
    """Lead every function of torch that the user's code calls to ``hear``; those that it calls itself do not come."""

    def __init__(self, hear: Hear) -> None:
        super().__init__()
        self._hear = hear

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Within vmap and its like tensors have no values of their own.
        if getattr(function, "__name__", "__get__") in _UNHEARD or torch._C._functorch.peek_interpreter_stack():
            return function(*args, **(kwargs or {}))
        return self._hear(function, _name(function), args, kwargs or {})


def hear_functions(model: Any, hear: Hear) -> Hook:
    """Let ``hear`` be called in place of torch's functions, in whatever code, until the hook is closed."""
    mode = _Mode(hear)
    mode.__enter__()
    return Hook(lambda: mode.__exit__(None, None, None))


def _name(function: Any) -> str:
    known = resolve_name(function)
    if known is not None:
        return str(known)
    home, _, name = str(getattr(function, "__qualname__", function.__name__)).rpartition(".")
    return f"{_PREFIXES.get(home, getattr(function, '__module__', None) or 'torch')}.{name}"
