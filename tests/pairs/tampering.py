"""Spoil a built model from outside: modes, and weights as a wrong conversion script leaves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .zoo import native

__all__ = ["change", "module_at", "swap", "train_mode", "transpose"]

Tampering = Callable[[Any, str], None]
"""Takes the candidate and its framework."""


def module_at(model: Any, path: str) -> Any:
    """Return the module at a dotted path; ``""`` is the model."""
    for name in filter(None, path.split(".")):
        model = model[int(name)] if name.isdigit() and not hasattr(model, name) else getattr(model, name)
    return model


def train_mode(paths: Mapping[str, str]) -> Tampering:
    """Return a tampering that puts one module into train mode."""
    return lambda model, framework: native.set_mode(framework, module_at(model, paths[framework]), train=True) and None


def change(paths: Mapping[str, str], how: Callable[[np.ndarray], np.ndarray]) -> Tampering:
    """Return a tampering that passes one parameter or buffer, in its native layout, through ``how``."""

    def tamper(model: Any, framework: str) -> None:
        tensor = module_at(model, paths[framework])
        native.write(framework, tensor, how(native.read(framework, tensor)))

    return tamper


def transpose(paths: Mapping[str, str]) -> Tampering:
    """Return a tampering that transposes one square weight."""
    return change(paths, np.transpose)


def swap(paths: Mapping[str, tuple[str, str]]) -> Tampering:
    """Return a tampering that swaps two parameters of one shape."""

    def tamper(model: Any, framework: str) -> None:
        first, second = (module_at(model, path) for path in paths[framework])
        kept = native.read(framework, first)
        native.write(framework, first, native.read(framework, second))
        native.write(framework, second, kept)

    return tamper
