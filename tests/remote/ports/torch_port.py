"""Be the torch side of the pairs; imported by workers, and by tests that build it in their own process."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn


@dataclasses.dataclass
class Output:
    logits: Any
    hidden: Any = None


class Cache:
    """Be an argument that holds no tensor at first, and that padiff knows nothing of."""

    def __init__(self) -> None:
        self.kept: list[Any] = []


class Block(nn.Module):
    def __init__(self, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = scale

    def forward(self, x: Any, pair: tuple[Any, Any], *, cache: Cache, gain: float = 1.0) -> tuple[Any, dict[str, Any]]:
        cache.kept.append(x.shape)
        hidden = nn.functional.relu(self.up(self.norm(x)))
        out = x + self.down(hidden) * gain * self.scale + pair[0]
        return out, {"hidden": hidden, "nothing": None}


class Net(nn.Module):
    """Use what models use: nested arguments and outputs, a shared module, buffers, in-place code, a cache, LSTM."""

    def __init__(self, width: int = 16, blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.bn = nn.BatchNorm1d(width)
        self.shared = nn.Linear(width, width)
        self.act = nn.GELU()
        self.head = nn.Linear(width, 5)
        self.leak = 1.0
        self.fails = False

    def forward(self, ids: Any, x: Any, options: dict[str, Any] | None = None) -> Output:
        cache = Cache()
        h = self.embed(ids) + x
        for block in self.blocks:
            h, extra = block(h, (x, [x]), cache=cache, gain=0.5)
        h, _ = self.lstm(h)
        pooled = self.bn(h.mean(1))
        pooled = self.act(self.shared(self.shared(pooled)))
        pooled.mul_(2.0)
        if self.leak < 1:
            pooled = pooled * self.leak + pooled.detach() * (1 - self.leak)
        if self.fails:
            msg = "this is missing"
            raise LookupError(msg)
        return Output(self.head(pooled), (h, extra["hidden"]))


def build(**options: Any) -> nn.Module:
    """Return the network in training mode."""
    torch.manual_seed(0)
    return Net(**options)


def set_up(model: Net, fault: str = "", *, train: bool = True, dtype: str = "float32") -> Net:
    """Make a network as it was built, but for a fault: so one process serves many tests."""
    model.to(torch.float32).load_state_dict(build().state_dict())
    model.train(train).to(getattr(torch, dtype))
    model.zero_grad()
    model.blocks[1].norm.eps = 1e-3 if "epsilon" in fault else 1e-5
    model.blocks[0].scale = 1.01 if "scale" in fault else 1.0
    model.leak = 0.5 if "detached" in fault else 1.0
    model.bn.momentum = 0.2 if "momentum" in fault else 0.1
    model.fails = "forward" in fault
    return model


def make_ready(model: Net, fault: str = "", **options: Any) -> None:
    """Set the network of a worker up."""
    set_up(model, fault, **options)


def loss(output: Output) -> Any:
    """Return a loss."""
    return (output.logits**2).mean()


def heavier(output: Output) -> Any:
    """Return another loss."""
    return 3 * (output.logits**2).mean()


def failing(output: Output) -> Any:
    """Raise as a loss with a mistake does."""
    return output.logits.no_such_method()


def optimizer(model: nn.Module) -> Any:
    """Return an optimizer of the model's parameters."""
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def other_optimizer(model: nn.Module) -> Any:
    """Return one that forgets the decay."""
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)


def weights(model: nn.Module, name: str) -> Any:
    """Return one parameter."""
    return dict(model.named_parameters())[name].detach()


def state(model: nn.Module) -> dict[str, Any]:
    """Return all that a diff must leave as it was: values, gradients, modes, hooks, the generator's state."""
    values = {name: value.detach() for name, value in model.state_dict().items()}
    gradients = {f"{name} gradient": int(p.grad is not None) for name, p in model.named_parameters()}
    modes = {f"{name} mode": int(module.training) for name, module in model.named_modules()}
    hooks = {
        f"{name} hooks": len(module._forward_hooks) + len(module._forward_pre_hooks)
        for name, module in model.named_modules()
    }
    return {**values, **gradients, **modes, **hooks, "generator": torch.get_rng_state()}


def inputs() -> dict[str, Any]:
    """Return inputs, made by torch."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 20, (4, 6), generator=generator)
    return {"ids": ids, "x": torch.randn(4, 6, 16, generator=generator)}
