"""Spell in each framework what the tests do to a model from outside: seed, mode, names, reading, writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["built_in", "cast", "named", "parameters", "read", "seed", "set_mode", "write"]


def seed(framework: str, number: int) -> None:
    """Seed the framework's own random numbers."""
    native = import_module(framework)
    name = {"torch": "manual_seed", "paddle": "seed", "mindspore": "set_seed"}[framework]
    getattr(native, name)(number)


@contextmanager
def built_in(framework: str, dtype: str) -> Iterator[None]:
    """Build in this floating dtype, where the framework has a default dtype: MindSpore has none."""
    native = import_module(framework)
    if framework == "mindspore":
        yield
        return
    before = native.get_default_dtype()
    native.set_default_dtype(getattr(native, dtype))
    try:
        yield
    finally:
        native.set_default_dtype(before)


def cast(framework: str, model: Any, dtype: str) -> None:
    """Move a model built in float32 to this dtype, where that is the framework's way."""
    if framework == "mindspore" and dtype != "float32":
        native = import_module(framework)
        for parameter in parameters(framework, model).values():
            parameter.set_dtype(getattr(native, dtype))


def set_mode(framework: str, model: Any, *, train: bool) -> Any:
    """Put the model, or one module of it, into train or evaluation mode; return it."""
    if framework == "mindspore":
        model.set_train(train)
    elif train:
        model.train()
    else:
        model.eval()
    return model


def parameters(framework: str, model: Any) -> dict[str, Any]:
    """Return the parameters by path, once each; MindSpore counts statistics among them."""
    if framework == "mindspore":
        return dict(model.parameters_and_names())
    return dict(model.named_parameters())


def named(framework: str, model: Any) -> dict[str, Any]:
    """Return the parameters and buffers by path."""
    if framework == "mindspore":
        return parameters(framework, model)
    return {**parameters(framework, model), **dict(model.named_buffers())}


def read(framework: str, tensor: Any) -> np.ndarray:
    """Return a copy of a tensor's values."""
    return np.array(tensor.asnumpy() if framework == "mindspore" else tensor.detach().numpy(), copy=True)


def write(framework: str, tensor: Any, array: np.ndarray) -> None:
    """Overwrite a tensor's values in place, in its own dtype."""
    native = import_module(framework)
    array = np.ascontiguousarray(array, dtype=read(framework, tensor).dtype)
    if framework == "mindspore":
        tensor.set_data(native.Tensor(array))
        return
    with native.no_grad():
        if framework == "torch":
            tensor.copy_(native.from_numpy(array))
        else:
            tensor.set_value(array)
