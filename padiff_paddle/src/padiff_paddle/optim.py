"""Read Paddle's optimizers: hyper-parameters under common names, and one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import paddle

from padiff.adapter import AnyStepListener, optimizers, replaced

# One entry a family, the most derived class first: (class, family's name, {common name: attribute}).
_ADAM = {"beta1": "_beta1", "beta2": "_beta2", "eps": "_epsilon"}
_OF_LBFGS = ("max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size", "line_search_fn")
_FAMILIES: tuple[optimizers.Family, ...] = (
    ("AdamW", "adamw", {**_ADAM, "amsgrad": "_amsgrad"}),
    ("NAdam", "nadam", {**_ADAM, "momentum_decay": "_momentum_decay"}),
    ("RAdam", "radam", _ADAM),
    ("Adamax", "adamax", _ADAM),
    ("Adam", "adam", {**_ADAM, "amsgrad": "_amsgrad"}),
    ("Lamb", "lamb", _ADAM),
    ("Momentum", "sgd", {"momentum": "_momentum", "nesterov": "_use_nesterov"}),
    ("SGD", "sgd", {}),
    ("RMSProp", "rmsprop", {"momentum": "_momentum", "eps": "_epsilon", "rho": "_rho", "centered": "_centered"}),
    ("Adagrad", "adagrad", {"eps": "_epsilon", "initial_accumulator_value": "initial_accumulator_value"}),
    ("Adadelta", "adadelta", {"eps": "_epsilon", "rho": "_rho"}),
    ("ASGD", "asgd", {}),
    ("Rprop", "rprop", {}),
    ("LBFGS", "lbfgs", {name: name for name in _OF_LBFGS}),
)


def inner(optimizer: Any) -> Any:
    """Return the optimizer inside fleet's wrappers."""
    while hasattr(optimizer, "_inner_opt"):
        optimizer = optimizer._inner_opt
    return optimizer


def is_optimizer(value: Any) -> bool:
    """Return whether the value is a ``paddle.optimizer.Optimizer``, or one inside of fleet's wrappers."""
    return isinstance(inner(value), paddle.optimizer.Optimizer)


def step(optimizer: Any) -> None:
    """Take one step and clear the gradients."""
    optimizer.step()
    optimizer.clear_grad(set_to_zero=False)


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's hyper-parameters under common names; empty for a plain callable."""
    optimizer = inner(optimizer)
    if not hasattr(optimizer, "get_lr"):
        return {}
    found = {**optimizers.of_family(optimizer, _FAMILIES), "lr": float(optimizer.get_lr()), **_decay(optimizer)}
    clip = getattr(optimizer, "_grad_clip", None)
    found |= {} if clip is None else {"clip": str(clip)}
    # Paddle has a class of its own for SGD with momentum; plain SGD is the same family at 0.
    return {"momentum": 0.0, "nesterov": False, **found} if found["class"] == "sgd" else found


def parameters_of(optimizer: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each parameter that is stepped, with the hyper-parameters of its group, and its own."""
    optimizer = inner(optimizer)
    known = settings_of(optimizer)
    for entry in (getattr(optimizer, "_param_groups", None) or ()) if known else ():
        group = entry if isinstance(entry, dict) else {}
        told = {name: group[name] for name in _IN_GROUPS if group.get(name) is not None}
        grouped = {_IN_GROUPS[name]: optimizers.plain(value) for name, value in told.items()}
        for parameter in group["params"] if group else [entry]:
            yield parameter, {**known, **grouped, **_own(optimizer, parameter, known["lr"])}


def on_any_step(called: AnyStepListener) -> Callable[[], None]:
    """Call a function in each step of any optimizer, with that one and the gradients as they were clipped.

    What comes next adds the regularization to them, which torch's optimizers do inside. Return what ends that.
    """
    plain = paddle.optimizer.Optimizer.append_regularization_ops

    def about_to_step(own: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        called(own, ((parameter, gradient) for parameter, gradient in gradients if gradient is not None))
        return plain(own, gradients, *args, **kwargs)

    shadow = ExitStack()
    shadow.enter_context(replaced(paddle.optimizer.Optimizer, "append_regularization_ops", about_to_step))
    return shadow.close


_IN_GROUPS = {
    "beta1": "beta1",
    "beta2": "beta2",
    "epsilon": "eps",
    "weight_decay": "weight_decay",
    "regularization_coeff": "weight_decay",
}
"""What a group holds -> the common name; each parameter keeps its own share of the learning rate. Momentum's step
decays by a coefficient of its own, and says None of its weight decay."""


def _own(optimizer: Any, parameter: Any, rate: float) -> dict[str, Any]:
    """Return what holds for one parameter alone."""
    ratio, decays = (getattr(optimizer, name, None) for name in ("_lr_ratio", "_apply_decay_param_fun"))
    found: dict[str, Any] = {"lr": rate * float(parameter.optimize_attr.get("learning_rate", 1.0))}
    if ratio is not None:
        found["lr"] *= float(ratio(parameter))
    regularizer = getattr(parameter, "regularizer", None)
    if hasattr(optimizer, "_weight_decay"):
        if decays is not None and not decays(parameter.name):
            found["weight_decay"] = 0.0
    elif regularizer is not None:
        found |= _regularized(regularizer)
    if not getattr(parameter, "need_clip", True):
        found["clip"] = None
    return found


def _decay(optimizer: Any) -> dict[str, float]:
    """Return the weight decay, whichever of the places it hides in."""
    for name in ("_weight_decay", "_lamb_weight_decay"):
        if hasattr(optimizer, name):
            return {"weight_decay": float(getattr(optimizer, name))}
    regularizer = getattr(optimizer, "regularization", None)
    if regularizer is not None:
        return _regularized(regularizer)
    return {"weight_decay": float(getattr(optimizer, "_regularization_coeff", 0.0))}


def _regularized(regularizer: Any) -> dict[str, float]:
    if isinstance(regularizer, paddle.regularizer.L1Decay):
        return {"weight_decay": 0.0, "l1_decay": float(regularizer._coeff)}
    coefficient = getattr(regularizer, "_coeff", getattr(regularizer, "_regularization_coeff", 0.0))
    return {"weight_decay": float(coefficient)}
