"""Read Paddle's optimizers: hyper-parameters under common names, and one step."""

from __future__ import annotations

from typing import Any

import paddle

from padiff.adapter import optimizers

__all__ = ["is_optimizer", "settings_of", "step"]

# One entry a family, the most derived class first: (class, family's name, {common name: attribute}).
_ADAM = {"beta1": "_beta1", "beta2": "_beta2", "eps": "_epsilon"}
_FAMILIES: tuple[optimizers.Family, ...] = (
    ("AdamW", "adamw", _ADAM),
    ("NAdam", "nadam", {**_ADAM, "momentum_decay": "_momentum_decay"}),
    ("RAdam", "radam", _ADAM),
    ("Adamax", "adamax", _ADAM),
    ("Adam", "adam", _ADAM),
    ("Lamb", "lamb", _ADAM),
    ("Momentum", "sgd", {"momentum": "_momentum", "nesterov": "_use_nesterov"}),
    ("SGD", "sgd", {}),
    ("RMSProp", "rmsprop", {"momentum": "_momentum", "eps": "_epsilon", "rho": "_rho", "centered": "_centered"}),
    ("Adagrad", "adagrad", {"eps": "_epsilon"}),
    ("Adadelta", "adadelta", {"eps": "_epsilon", "rho": "_rho"}),
    ("ASGD", "asgd", {}),
    ("Rprop", "rprop", {}),
    ("LBFGS", "lbfgs", {}),
)


def _inner(optimizer: Any) -> Any:
    """Return the optimizer inside fleet's wrappers."""
    while hasattr(optimizer, "_inner_opt"):
        optimizer = optimizer._inner_opt
    return optimizer


def is_optimizer(value: Any) -> bool:
    """Return whether the value is a ``paddle.optimizer.Optimizer``, or one inside of fleet's wrappers."""
    return isinstance(_inner(value), paddle.optimizer.Optimizer)


def step(optimizer: Any) -> None:
    """Take one step and clear the gradients."""
    optimizer.step()
    optimizer.clear_grad(set_to_zero=False)


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's hyper-parameters under common names; empty for a plain callable."""
    optimizer = _inner(optimizer)
    if not hasattr(optimizer, "get_lr"):
        return {}
    found = {**optimizers.of_family(optimizer, _FAMILIES), "lr": float(optimizer.get_lr()), **_decay(optimizer)}
    # Paddle has a class of its own for SGD with momentum; plain SGD is the same family at 0.
    return {"momentum": 0.0, "nesterov": False, **found} if found["class"] == "sgd" else found


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
