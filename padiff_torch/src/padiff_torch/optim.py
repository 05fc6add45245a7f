"""Read optimizers' hyper-parameters, under the names that all frameworks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["settings", "step"]

# How an optimizer computes, not what.
_IMPLEMENTATION = {"params", "param_names", "foreach", "capturable", "differentiable", "fused", "initial_lr"}
_IMPLEMENTATION |= {"decoupled_weight_decay"}
_PAIRS = {
    "betas": ("beta1", "beta2"),
    "etas": ("eta_minus", "eta_plus"),
    "step_sizes": ("step_min", "step_max"),
}


def step(optimizer: Any) -> None:
    """Take one step and clear the gradients; a plain callable is simply called."""
    if not hasattr(optimizer, "step"):
        optimizer()
        return
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def settings(optimizer: Any) -> dict[str, Any]:
    """Return the hyper-parameters of all groups; those of group 1 and later are prefixed ``group1.``."""
    groups = getattr(optimizer, "param_groups", None)
    if not groups:
        return {}
    found: dict[str, Any] = {"class": _family(optimizer, groups[0])}
    for index, group in enumerate(groups):
        prefix = f"group{index}." if index else ""
        found.update({f"{prefix}{name}": value for name, value in _entries(group)})
    return found


def _family(optimizer: Any, group: Mapping[str, Any]) -> str:
    """Return the name of the class of torch.optim that it is, or of its own class."""
    mro = type(optimizer).__mro__
    known = (cls for cls in mro if cls.__module__.startswith("torch.optim.") and cls.__name__ != "Optimizer")
    name = next(known, mro[0]).__name__.lower()
    return "adamw" if name == "adam" and group.get("decoupled_weight_decay") else name


def _entries(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in group.items():
        if name in _IMPLEMENTATION:
            continue
        values = value if name in _PAIRS else (value,)
        for one, item in zip(_PAIRS.get(name, (name,)), values, strict=True):
            yield one, item.item() if hasattr(item, "item") else item
