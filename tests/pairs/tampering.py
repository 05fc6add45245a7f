"""Spoil a built model from outside: modes, and weights as a wrong conversion script leaves them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["change", "module_at", "swap", "train_mode", "transpose"]


def module_at(model: Any, path: str) -> Any:
    """Return the module at a dotted path; ``""`` is the model."""
    for name in filter(None, path.split(".")):
        model = model[int(name)] if name.isdigit() and not hasattr(model, name) else getattr(model, name)
    return model


def train_mode(torch: str, paddle: str) -> Callable[[Any, str], None]:
    """Return a tampering that puts one module into train mode."""
    paths = {"torch": torch, "paddle": paddle}
    return lambda model, framework: module_at(model, paths[framework]).train() and None


def _assign(tensor: Any, array: np.ndarray, framework: str) -> None:
    native = import_module(framework)
    array = np.ascontiguousarray(array)
    with native.no_grad():
        if framework == "torch":
            tensor.copy_(native.from_numpy(array))
        else:
            tensor.set_value(array)


def change(torch: str, paddle: str, how: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any, str], None]:
    """Return a tampering that passes one parameter or buffer, in its native layout, through ``how``."""
    paths = {"torch": torch, "paddle": paddle}

    def tamper(model: Any, framework: str) -> None:
        tensor = module_at(model, paths[framework])
        _assign(tensor, how(tensor.detach().numpy().copy()), framework)

    return tamper


def transpose(torch: str, paddle: str) -> Callable[[Any, str], None]:
    """Return a tampering that transposes one square weight."""
    return change(torch, paddle, np.transpose)


def swap(torch: tuple[str, str], paddle: tuple[str, str]) -> Callable[[Any, str], None]:
    """Return a tampering that swaps two parameters of one shape."""
    paths = {"torch": torch, "paddle": paddle}

    def tamper(model: Any, framework: str) -> None:
        first, second = (module_at(model, path) for path in paths[framework])
        kept = first.detach().numpy().copy()
        _assign(first, second.detach().numpy().copy(), framework)
        _assign(second, kept, framework)

    return tamper
