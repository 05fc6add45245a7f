"""Read MindSpore's optimizers: hyper-parameters under common names, and one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from mindspore import nn, ops
from mindspore.experimental import optim as experimental

from padiff.adapter import AnyStepListener, optimizers, replaced
from padiff_mindspore.autograd import finish

# Of mindspore.nn, one entry a family, the most derived class first: (class, family's name, {common name: attribute}).
_ADAM = {"beta1": "beta1", "beta2": "beta2", "eps": "eps"}
_FAMILIES: tuple[optimizers.Family, ...] = (
    ("AdamWeightDecay", "adamw", _ADAM),
    ("Adam", "adam", {**_ADAM, "amsgrad": "use_amsgrad"}),
    ("LazyAdam", "adam", _ADAM),
    ("AdaMax", "adamax", _ADAM),
    ("Lamb", "lamb", _ADAM),
    ("SGD", "sgd", {"momentum": "momentum", "nesterov": "nesterov", "dampening": "dampening"}),
    ("Momentum", "sgd", {"momentum": "momentum", "nesterov": "use_nesterov"}),
    ("RMSProp", "rmsprop", {"momentum": "momentum", "eps": "epsilon", "rho": "decay", "centered": "centered"}),
    ("Adagrad", "adagrad", {}),
    ("Adadelta", "adadelta", {"eps": "epsilon", "rho": "rho"}),
    ("ASGD", "asgd", {}),
    ("Rprop", "rprop", {}),
)
_RULES = {"Adam": optimizers.UNSCALED, "LazyAdam": optimizers.UNSCALED, "AdamWeightDecay": optimizers.UNCORRECTED}
# How an optimizer computes, not what.
_IMPLEMENTATION = {"params", "lr_float", "grad_centralization", "initial_lr"}


def is_optimizer(value: Any) -> bool:
    """Return whether the value is an optimizer of ``mindspore.nn``, of ``mint.optim`` or of ``experimental.optim``."""
    return isinstance(value, nn.Optimizer | experimental.Optimizer)


def inner(optimizer: Any) -> Any:
    """Return the optimizer that steps, which is itself: MindSpore has no wrappers of it."""
    return optimizer


def step(optimizer: Any) -> None:
    """Take one step on the gradients that stand at the parameters, and clear them.

    A parameter without a gradient gets zeros, which is what MindSpore's own ``value_and_grad`` gives it.
    """
    parameters = list(optimizer.parameters)
    optimizer(tuple(ops.zeros_like(one) if one._grad is None else one._grad for one in parameters))
    finish()
    for one in parameters:
        one._grad = None


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's hyper-parameters under common names; empty for a plain callable."""
    if isinstance(optimizer, experimental.Optimizer):
        return _of_groups(optimizer, optimizer.param_groups)
    if not isinstance(optimizer, nn.Optimizer):
        return {}
    return {**optimizers.of_family(optimizer, _FAMILIES, _RULES), **dict(_rates(optimizer))}


def parameters_of(optimizer: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each parameter that is stepped, with the hyper-parameters of its group."""
    if isinstance(optimizer, experimental.Optimizer):
        for group in optimizer.param_groups:
            settings = _of_groups(optimizer, [group])
            yield from ((parameter, settings) for parameter in group["params"])
    elif isinstance(optimizer, nn.Optimizer):
        known = optimizers.of_family(optimizer, _FAMILIES, _RULES)
        rates, decays = optimizer.get_lr(), optimizer.get_weight_decay()
        for index, (parameter, decayed) in enumerate(zip(optimizer.parameters, optimizer.decay_flags, strict=True)):
            rate, decay = (optimizers.plain(x[index] if isinstance(x, tuple | list) else x) for x in (rates, decays))
            yield parameter, {**known, "lr": rate, "weight_decay": decay if decayed else 0.0}


def on_any_step(called: AnyStepListener) -> Callable[[], None]:
    """Call a function before each step of any optimizer, with that one and the gradients that it is called with.

    One with a ``loss_scale`` divides them by that itself. Return what ends that.
    """
    shadow = ExitStack()
    for cls in (nn.Optimizer, experimental.Optimizer):
        shadow.enter_context(replaced(cls, "__call__", _telling(cls.__call__, called)))
    return shadow.close


def _telling(plain: Callable[..., Any], called: AnyStepListener) -> Callable[..., Any]:
    def step(own: Any, *args: Any, **kwargs: Any) -> Any:
        if args and len(args[0]) == len(own.parameters):
            scale = float(getattr(own, "loss_scale", None) or 1.0)
            given = args[0] if scale == 1 else [gradient / scale for gradient in args[0]]
            called(own, zip(own.parameters, given, strict=True))
        return plain(own, *args, **kwargs)

    return step


def _of_groups(optimizer: Any, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    name = type(optimizer).__name__.lower()
    # Of experimental.optim; mint's computes as torch's does.
    rules = _RULES["Adam"] if type(optimizer) is experimental.Adam else {}
    return optimizers.of_groups(groups, _IMPLEMENTATION, name, rules)


def _rates(optimizer: Any) -> Iterator[tuple[str, Any]]:
    """Yield learning rate and weight decay, of one group or of several, and what the decay leaves out."""
    decays = _several(optimizer.get_weight_decay())
    for name, values in (("lr", _several(optimizer.get_lr())), ("weight_decay", decays)):
        for index, value in enumerate(values):
            yield f"group{index}.{name}" if index else name, value
    flags = zip(optimizer.parameters, optimizer.decay_flags, strict=False)
    left_out = [parameter.name for parameter, decayed in flags if not decayed]
    if left_out and any(decays) and not optimizer.is_group:
        yield "not decayed", ", ".join(left_out)


def _several(value: Any) -> list[Any]:
    """Return one value for each group; MindSpore gives one for each parameter."""
    several = value if isinstance(value, tuple | list) else [value]
    return list(dict.fromkeys(map(optimizers.plain, several)))
