"""Read torch's optimizers: hyper-parameters under common names, and one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from padiff.adapter import AnyStepListener, class_names, optimizers

# How an optimizer computes, not what.
_IMPLEMENTATION = {"params", "param_names", "foreach", "capturable", "differentiable", "fused", "initial_lr"}
_IMPLEMENTATION |= {"decoupled_weight_decay"}


def is_optimizer(value: Any) -> bool:
    """Return whether the value is an optimizer of ``torch.optim``, or of Megatron's or DeepSpeed's around one."""
    return _is_torch(value) or _is_engine(value) or _is_megatron(value)


def _is_torch(value: Any) -> bool:
    return isinstance(value, torch.optim.Optimizer)


def _is_engine(value: Any) -> bool:
    return any(name.startswith("deepspeed.runtime.engine.") for name in class_names(value))


def _is_megatron(value: Any) -> bool:
    return any(name.startswith("megatron.core.optimizer.optimizer.") for name in class_names(value))


def inner(optimizer: Any) -> Any:
    """Return the optimizer of torch.optim that steps: inside of an engine, or of an optimizer that is around one.

    The outer one may be given other gradients, of which nothing is made (ZeroRedundancyOptimizer, SAM).
    """
    if _is_engine(optimizer):
        optimizer = getattr(optimizer, "basic_optimizer", None) or optimizer.optimizer
    while _is_megatron(optimizer):
        optimizer = [*getattr(optimizer, "chained_optimizers", ()), getattr(optimizer, "optimizer", None)][0]
    around = [optimizer]
    while len(held := [one for one in getattr(around[-1], "__dict__", {}).values() if _is_torch(one)]) == 1:
        if any(held[0] is one for one in around):
            break
        around += held
    return around[-1]


def step(optimizer: Any) -> None:
    """Take one step and clear the gradients."""
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's hyper-parameters under common names; empty for a plain callable."""
    groups = getattr(optimizer if _is_megatron(optimizer) else inner(optimizer), "param_groups", None)
    if not groups:
        return {}
    return _of_groups(inner(optimizer), groups)


def parameters_of(optimizer: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each parameter that is stepped, with the hyper-parameters of its group."""
    if _is_engine(optimizer):
        return  # its groups hold flat ranges in place of parameters
    own = inner(optimizer)
    for group in getattr(optimizer if _is_megatron(optimizer) else own, "param_groups", ()):
        settings = _of_groups(own, [group])
        yield from ((parameter, settings) for parameter in group["params"])


def on_any_step(called: AnyStepListener) -> Callable[[], None]:
    """Call a function before each step of any optimizer, with that one and the gradients; return what ends that.

    A fused one divides them by the scale of a gradient scaler itself.
    """

    def about_to_step(own: Any, *_: Any) -> None:
        if inner(own) is not own:
            return
        held = [one for group in own.param_groups for one in group["params"] if one.grad is not None]
        scale = getattr(own, "grad_scale", None)
        called(own, ((one, one.grad if scale is None else one.grad / scale) for one in held))

    end: Callable[[], None] = register_optimizer_step_pre_hook(about_to_step).remove
    return end


def _of_groups(optimizer: Any, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return optimizers.of_groups(groups, _beside(optimizer, groups), _family(optimizer, groups[0]))


def _beside(optimizer: Any, groups: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the entries of groups that are no hyper-parameters: a training stack keeps notes of its own there."""
    known = getattr(optimizer, "defaults", {}) or {}
    return _IMPLEMENTATION | {name for group in groups for name in group if known and name not in known}


def _family(optimizer: Any, group: Mapping[str, Any]) -> str:
    """Return the name of the class of torch.optim that it is, or of its own class."""
    mro = type(optimizer).__mro__
    known = (cls for cls in mro if cls.__module__.startswith("torch.optim.") and cls.__name__ != "Optimizer")
    name = next(known, mro[0]).__name__.lower()
    return "adamw" if name == "adam" and group.get("decoupled_weight_decay") else name
