"""Read Paddle's optimizers: hyper-parameters under common names, and one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import paddle

__all__ = ["inner", "settings_of", "step"]

# One entry a family, the most derived class first: (class, family's name, {common name: attribute}).
_ADAM = {"beta1": "_beta1", "beta2": "_beta2", "eps": "_epsilon"}
_FAMILIES: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("AdamW", "adamw", _ADAM),
    ("NAdam", "nadam", {**_ADAM, "momentum_decay": "_momentum_decay"}),
    ("RAdam", "radam", _ADAM),
    ("Adamax", "adamax", _ADAM),
    ("Adam", "adam", _ADAM),
    ("Lamb", "lamb", _ADAM),
    ("Momentum", "sgd", {"momentum": "_momentum", "nesterov": "_use_nesterov"}),
    ("SGD", "sgd", {}),
    (
        "RMSProp",
        "rmsprop",
        {"momentum": "_momentum", "eps": "_epsilon", "rho": "_rho", "centered": "_centered"},
    ),
    ("Adagrad", "adagrad", {"eps": "_epsilon"}),
    ("Adadelta", "adadelta", {"eps": "_epsilon", "rho": "_rho"}),
    ("ASGD", "asgd", {}),
    ("Rprop", "rprop", {}),
    ("LBFGS", "lbfgs", {}),
)
# Paddle has a class of its own for SGD with momentum; plain SGD is the same family at 0.
_FIXED: Mapping[str, Mapping[str, Any]] = {"SGD": {"momentum": 0.0, "nesterov": False}}


def inner(optimizer: Any) -> Any:
    """Return the optimizer inside fleet's wrappers."""
    while hasattr(optimizer, "_inner_opt"):
        optimizer = optimizer._inner_opt
    return optimizer


def _plain(value: Any) -> Any:
    """Return a Python number for a tensor of one element."""
    return value.item() if isinstance(value, paddle.Tensor) else value


def _decay(optimizer: Any) -> dict[str, float]:
    """Return the weight decay, whichever of the places it hides in."""
    for name in ("_weight_decay", "_lamb_weight_decay"):
        if hasattr(optimizer, name):
            return {"weight_decay": float(getattr(optimizer, name))}
    coefficient = getattr(optimizer, "_regularization_coeff", 0.0)
    regularizer = getattr(optimizer, "regularization", None)
    if isinstance(regularizer, paddle.regularizer.L1Decay):
        return {"weight_decay": 0.0, "l1_decay": float(regularizer._coeff)}
    if regularizer is not None:
        coefficient = getattr(regularizer, "_coeff", getattr(regularizer, "_regularization_coeff", 0.0))
    return {"weight_decay": float(coefficient)}


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's hyper-parameters under common names; empty for a plain callable."""
    optimizer = inner(optimizer)
    if not hasattr(optimizer, "get_lr"):
        return {}
    settings: dict[str, Any] = {"class": type(optimizer).__name__.lower(), "lr": float(optimizer.get_lr())}
    settings.update(_decay(optimizer))
    names = [cls.__name__ for cls in type(optimizer).__mro__]
    for name, family, attributes in _FAMILIES:
        if name in names:
            found = {key: _plain(getattr(optimizer, attribute)) for key, attribute in attributes.items()}
            return {**settings, "class": family, **found, **_FIXED.get(name, {})}
    return settings


def step(optimizer: Any) -> None:
    """Take one step and clear the gradients; simply call what is no optimizer."""
    if not hasattr(optimizer, "step"):
        call: Callable[[], Any] = optimizer
        call()
        return
    optimizer.step()
    optimizer.clear_grad(set_to_zero=False)
