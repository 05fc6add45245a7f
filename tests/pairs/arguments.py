"""Make the losses and optimizers of a diff: a right one for the reference, a wrong one for the candidate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tampering import module_at

__all__ = ["Maker", "losses", "optimizers"]

Maker = Callable[[tuple[str, str], tuple[Any, Any]], dict[str, Any]]
"""Takes the frameworks and the models, reference first; returns arguments of `padiff.diff`."""


def _mean_square(output: Any) -> Any:
    return (output * output).mean()


def losses(wrong: Callable[[Any], Any]) -> Maker:
    """Return the argument ``loss``: the mean square, and for the candidate that passed through ``wrong``."""
    return lambda frameworks, models: {"loss": (_mean_square, lambda output: wrong(_mean_square(output)))}


def _sgd(framework: str, model: Any, lr: float, weight_decay: float, path: str = "", local: Any = None) -> Any:
    """Return plain gradient descent; ``local`` holds settings of the one parameter at ``path``."""
    parameters = list(model.parameters())
    groups: list[dict[str, Any]] = [{"params": parameters}]
    if local:
        chosen = module_at(model, path)
        groups = [{"params": [p for p in parameters if p is not chosen]}, {"params": [chosen], **local}]
    if framework == "torch":
        import torch

        return torch.optim.SGD(groups, lr=lr, weight_decay=weight_decay)
    import paddle

    if len(groups) == 1:
        return paddle.optimizer.SGD(lr, parameters=parameters, weight_decay=weight_decay)
    for group in groups:  # Paddle's group learning rate is a factor of the optimizer's
        if "lr" in group:
            group["learning_rate"] = group.pop("lr") / lr
    return paddle.optimizer.SGD(lr, parameters=groups, weight_decay=weight_decay)


def _adamw(framework: str, model: Any, beta: float) -> Any:
    """Return AdamW with this second beta."""
    if framework == "torch":
        import torch

        return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, beta), weight_decay=0.01)
    import paddle

    return paddle.optimizer.AdamW(1e-3, beta2=beta, weight_decay=0.01, parameters=model.parameters())


def optimizers(name: str = "sgd", *, at: dict[str, str] | None = None, right: Any = None, wrong: Any = None) -> Maker:
    """Return the argument ``optimizers``: both alike, but for the candidate's ``wrong`` settings.

    ``at`` limits these to one parameter: its path in either framework.
    """

    def make(frameworks: tuple[str, str], models: tuple[Any, Any]) -> dict[str, Any]:
        made = []
        for framework, model, settings in zip(frameworks, models, (right or {}, wrong or {}), strict=True):
            if name == "adamw":
                made.append(_adamw(framework, model, settings.get("beta", 0.999)))
                continue
            plain = {"lr": 0.1, "weight_decay": 0.0}
            if at and settings:
                made.append(_sgd(framework, model, **plain, path=at[framework], local=settings))
            else:
                made.append(_sgd(framework, model, **{**plain, **settings}))
        return {"optimizers": tuple(made)}

    return make
