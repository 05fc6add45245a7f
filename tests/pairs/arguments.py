"""Make the losses and optimizers of a diff: a right one for the reference, a wrong one for the candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .tampering import module_at

__all__ = ["Maker", "losses", "optimizers"]

Maker = Callable[[tuple[str, str], tuple[Any, Any]], dict[str, Any]]
"""Takes the frameworks and the models, reference first; returns arguments of `padiff.diff`."""

Groups = list[dict[str, Any]]
"""Parameter groups; ``lr`` is the group's own learning rate."""


def _mean_square(output: Any) -> Any:
    return (output * output).mean()


def losses(wrong: Callable[[Any], Any]) -> Maker:
    """Return the argument ``loss``: the mean square, and for the candidate that passed through ``wrong``."""
    return lambda frameworks, models: {"loss": (_mean_square, lambda output: wrong(_mean_square(output)))}


def _torch_sgd(groups: Groups, lr: float, weight_decay: float, *, ungrouped: bool) -> Any:
    import torch

    return torch.optim.SGD(groups, lr=lr, weight_decay=weight_decay)


def _paddle_sgd(groups: Groups, lr: float, weight_decay: float, *, ungrouped: bool) -> Any:
    import paddle

    if len(groups) == 1:
        return paddle.optimizer.SGD(lr, parameters=groups[0]["params"], weight_decay=weight_decay)
    for group in groups:  # Paddle's group learning rate is a factor of the optimizer's
        if "lr" in group:
            group["learning_rate"] = group.pop("lr") / lr
    return paddle.optimizer.SGD(lr, parameters=groups, weight_decay=weight_decay)


def _mindspore_sgd(groups: Groups, lr: float, weight_decay: float, *, ungrouped: bool) -> Any:
    from mindspore import nn

    if ungrouped:
        return nn.SGD(groups[0]["params"], learning_rate=lr, weight_decay=weight_decay)
    return nn.SGD([{"weight_decay": weight_decay, **group} for group in groups], learning_rate=lr)


_SGD = {"torch": _torch_sgd, "paddle": _paddle_sgd, "mindspore": _mindspore_sgd}


def _parameters(framework: str, model: Any) -> list[Any]:
    return list(model.trainable_params() if framework == "mindspore" else model.parameters())


def _sgd(
    framework: str,
    model: Any,
    lr: float = 0.1,
    weight_decay: float = 0.0,
    *,
    ungrouped: bool = False,
    path: str = "",
    local: Mapping[str, Any] | None = None,
) -> Any:
    """Return plain gradient descent; ``local`` holds settings of the one parameter at ``path``.

    ``ungrouped`` hands MindSpore the parameters alone, as its tutorials do.
    """
    parameters = _parameters(framework, model)
    groups: Groups = [{"params": parameters}]
    if local:
        chosen = module_at(model, path)
        groups = [{"params": [p for p in parameters if p is not chosen]}, {"params": [chosen], **local}]
    return _SGD[framework](groups, lr, weight_decay, ungrouped=ungrouped)


def _adamw(framework: str, model: Any, beta: float = 0.999) -> Any:
    """Return AdamW with this second beta."""
    parameters = _parameters(framework, model)
    if framework == "torch":
        import torch

        return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, beta), weight_decay=0.01)
    if framework == "paddle":
        import paddle

        return paddle.optimizer.AdamW(1e-3, beta2=beta, weight_decay=0.01, parameters=parameters)
    from mindspore.experimental import optim  # nn.AdamWeightDecay corrects no bias, and is another optimizer

    return optim.AdamW(parameters, lr=1e-3, betas=(0.9, beta), weight_decay=0.01)


def optimizers(
    name: str = "sgd", *, at: Mapping[str, str] | None = None, right: Any = None, wrong: Any = None
) -> Maker:
    """Return the argument ``optimizers``: both alike, but for the candidate's ``wrong`` settings.

    ``at`` limits these to one parameter: its path in each framework.
    """

    def make(frameworks: tuple[str, str], models: tuple[Any, Any]) -> dict[str, Any]:
        made = []
        for framework, model, settings in zip(frameworks, models, (right or {}, wrong or {}), strict=True):
            if name == "adamw":
                made.append(_adamw(framework, model, **settings))
            elif at and settings:
                made.append(_sgd(framework, model, path=at[framework], local=settings))
            else:
                made.append(_sgd(framework, model, **settings))
        return {"optimizers": tuple(made)}

    return make
