"""Write tiny models once for torch and Paddle, and their inputs as PaDiff's scripts give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import torch

__all__ = ["DIRECTIONS", "array", "linear", "mlp", "native", "network", "nn", "pair", "residual"]

DIRECTIONS = (("torch", "paddle"), ("paddle", "torch"))

nn = {"torch": torch.nn, "paddle": paddle.nn}
_BASES = {"torch": torch.nn.Module, "paddle": paddle.nn.Layer}


def native(framework: str, values: Any) -> Any:
    """Return a tensor with these values."""
    values = np.asarray(values)
    return torch.from_numpy(values.copy()) if framework == "torch" else paddle.to_tensor(values)


def linear(framework: str, inputs: int, outputs: int, *, bias: bool = True) -> Any:
    """Return a linear layer."""
    if framework == "torch":
        return torch.nn.Linear(inputs, outputs, bias=bias)
    return paddle.nn.Linear(inputs, outputs, bias_attr=None if bias else False)


def network(framework: str, forward: Callable[..., Any], *, name: str = "Network", **layers: Any) -> Any:
    """Return a model of a class of its own, with these attributes and this forward (which takes ``self``)."""
    base = _BASES[framework]

    def __init__(self: Any) -> None:
        base.__init__(self)
        for attribute, layer in layers.items():
            setattr(self, attribute, layer)

    return type(name, (base,), {"__init__": __init__, "forward": forward})()


def mlp(framework: str, *, hidden: int = 16, out: int = 4, bias: bool = True, after: Any = None) -> Any:
    """Return fc1, relu, fc2 on 8 features; ``after`` is the model's own code on the result."""

    def forward(self: Any, x: Any) -> Any:
        y = self.fc2(self.act(self.fc1(x)))
        return y if after is None else after(y)

    act = nn[framework].ReLU()
    ends = linear(framework, 8, hidden), linear(framework, hidden, out, bias=bias)
    return network(framework, forward, name="Mlp", fc1=ends[0], act=act, fc2=ends[1])


def residual(framework: str, factors: dict[int, float] | None = None, *, depth: int = 5) -> Any:
    """Return ``depth`` residual blocks of norm, fc, relu on 8 features; ``factors`` scales branches."""

    def block(index: int) -> Any:
        scale = (factors or {}).get(index, 1.0)

        def forward(self: Any, x: Any) -> Any:
            return x + self.act(self.fc(self.norm(x))) * scale

        parts = {"norm": nn[framework].LayerNorm(8), "fc": linear(framework, 8, 8), "act": nn[framework].ReLU()}
        return network(framework, forward, name="Block", **parts)

    def forward(self: Any, x: Any) -> Any:
        for layer in self.blocks:
            x = layer(x)
        return self.head(x)

    listed = torch.nn.ModuleList if framework == "torch" else paddle.nn.LayerList
    blocks = listed([block(index) for index in range(depth)])
    return network(framework, forward, name="Residual", blocks=blocks, head=linear(framework, 8, 3))


def array(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normal float32 numbers, four rows of eight unless told."""
    return np.random.default_rng(seed).normal(size=shape or (4, 8)).astype(np.float32)


def pair(frameworks: tuple[str, str], values: Any = None, name: str = "x") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return one input for two models, each as its framework's tensor."""
    values = array() if values is None else values
    first, second = ({name: native(framework, values)} for framework in frameworks)
    return first, second
