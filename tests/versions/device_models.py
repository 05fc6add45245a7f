"""Models that use what devices compute otherwise than CPUs, each with faults that can be planted in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import torch
from torch import nn
from torch.nn import functional

Plan = frozenset[str]
"""The names of the faults that are planted."""


class ConvNet(nn.Module):
    """Convolutions, batch norms, a shortcut, a transposed convolution, interpolation and sampling."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16, momentum=0.2 if "momentum" in plan else 0.1)
        # No bias: in front of a norm its gradient is rounding alone, of which Adam makes a whole step.
        self.body = nn.Conv2d(16, 16, 3, padding=1, groups=4, bias=False)
        self.inner = nn.BatchNorm2d(16, eps=1e-3 if "bn_eps" in plan else 1e-5)
        mode = "replicate" if "padding" in plan else "zeros"
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1, padding_mode=mode)
        self.up = nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.norm(self.stem(x)))
        inner = functional.relu(self.inner(self.body(x)), inplace=True)
        x = inner if "residual" in self.plan else x + inner
        x = self.up(functional.silu(self.down(x)))
        x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners="corners" in self.plan)
        return self.head(functional.adaptive_avg_pool2d(functional.max_pool2d(x, 2), 2).mean((2, 3)))


class Warp(nn.Module):
    """Bilinear sampling at learned places, whose backward pass adds in any order."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.first = nn.Conv2d(2, 8, 1)
        self.places = nn.Linear(4, 2 * 36)

    def forward(self, x: Any, at: Any) -> Any:
        grid = torch.tanh(self.places(at)).view(-1, 6, 6, 2)
        mode = "border" if "border" in self.plan else "zeros"
        return functional.grid_sample(self.first(x), grid, padding_mode=mode, align_corners=False)


class Attention(nn.Module):
    """Causal attention."""

    def __init__(self, plan: Plan, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.plan, self.heads = plan, heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if "heads" in self.plan:
            v = v.flip(1)
        scale = 1.0 if "scale" in self.plan else None
        if "upcast" in self.plan:
            product = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5
            hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            share = product.masked_fill(hidden, -torch.inf).to(torch.bfloat16).softmax(-1).to(v.dtype)
            mixed = share @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal="mask" not in self.plan, scale=scale)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, plan: Plan, width: int = 64) -> None:
        super().__init__()
        self.plan = plan
        self.ln_1 = nn.LayerNorm(width, eps=1e-6 if "ln_eps" in plan else 1e-5)
        self.attention = Attention(plan)
        self.ln_2 = nn.LayerNorm(width)
        self.up, self.act = nn.Linear(width, 128), nn.GELU(approximate="tanh" if "gelu" in plan else "none")
        self.down = nn.Linear(128, width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.ln_1(x))
        inner = self.act(self.up(self.ln_2(x)))
        if "transposed" in self.plan:
            return x + functional.linear(inner, self.down.weight.t().reshape(64, 128), self.down.bias)
        if "bias" in self.plan:
            return x + functional.linear(inner, self.down.weight)
        return x + self.down(inner.detach() if "detach" in self.plan else inner)


class GPT(nn.Module):
    """A small language model, of three blocks; faults are planted in the second."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.tokens, self.positions = nn.Embedding(97, 64), nn.Embedding(32, 64)
        self.blocks = nn.ModuleList(Block(plan if index == 1 else frozenset()) for index in range(3))
        self.ln, self.head = nn.LayerNorm(64), nn.Linear(64, 97, bias=False)

    def forward(self, ids: Any) -> Any:
        places = torch.arange(ids.shape[1], device=ids.device) + ("offset" in self.plan)
        x = self.tokens(ids) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Recurrent(nn.Module):
    """An LSTM over sequences of several lengths, and a GRU behind it."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.gru, self.last = nn.GRU(32, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        whole, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        made, state = self.gru(whole.flip(1) if "flip" in self.plan else whole)
        return self.last(made + state[-1][:, None])


class Bags(nn.Module):
    """Sums over indices, which a device adds in any order."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.bag = nn.EmbeddingBag(50, 32, mode="mean" if "mean" in plan else "sum")
        self.table, self.mix = nn.Embedding(50, 32), nn.Linear(32, 32)

    def forward(self, ids: Any, groups: Any) -> Any:
        words = self.mix(self.table(ids)).reshape(-1, 32)
        flat = groups.reshape(-1)
        added = torch.zeros(7, 32, dtype=words.dtype, device=words.device).index_add(0, flat, words)
        if "scattered" in self.plan:
            flat = (flat + 1) % 7
        spread = torch.zeros_like(added).scatter_add(0, flat[:, None].expand(-1, 32), words * words)
        return functional.normalize(added, dim=1) @ self.bag(ids).t() + spread.mean(1, keepdim=True)


class Dropped(nn.Module):
    """A dropout, which draws other numbers on another device."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(8, 64), nn.Dropout(0.4 if "rate" in plan else 0.2)
        self.norm, self.last = nn.LayerNorm(64, eps=1e-3 if "behind" in plan else 1e-5), nn.Linear(64, 4)

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.drop(self.first(x))))


MODELS: dict[str, Callable[[Plan], nn.Module]] = {
    "conv": ConvNet,
    "warp": Warp,
    "gpt": GPT,
    "recurrent": Recurrent,
    "bags": Bags,
    "drop": Dropped,
}


def build(name: str, plan: Plan = frozenset()) -> Any:
    """Return a model with the faults of a plan, on the CPU."""
    torch.manual_seed(1 if plan else 0)
    model = MODELS[name](plan)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -0.5, 0.5)
    return model


def inputs_of(name: str) -> dict[str, Any]:
    """Return the inputs of a model."""
    rng = np.random.default_rng(0)

    def noise(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype="float32")

    if name == "conv":
        return {"x": noise(4, 3, 16, 16)}
    if name == "warp":
        return {"x": noise(3, 2, 9, 9), "at": noise(3, 4)}
    if name == "gpt":
        return {"ids": rng.integers(0, 97, (3, 24))}
    if name == "recurrent":
        return {"x": noise(4, 9, 12), "lengths": np.array([9, 4, 7, 2])}
    if name == "bags":
        return {"ids": rng.integers(0, 50, (6, 40)), "groups": rng.integers(0, 7, (6, 40))}
    return {"x": noise(64, 8)}


@attrs.frozen
class Fault:
    """A mistake, the model in which it is planted, and the place at which a report has to name it."""

    name: str
    model: str
    path: str
    """Of the candidate's module."""
    coarse: bool = True
    """Whether it is far above the rounding of a narrow type."""
    recorded: bool = False
    """Whether runs that were recorded show it too."""
    settings: bool = False
    """Whether the report has to tell which setting differs."""

    def shows(self, dtype: str, cast: str | None) -> bool:
        """Return whether it is to be seen in a type: upcasting is none where the type is the narrow one anyway."""
        return self.name != "upcast" or (dtype == "float32" and cast is None)

    def is_named(self, report: Any) -> bool:
        """Return whether a report names it at its place, and nothing else."""
        found = {one.candidate.path for one in report.sources if one.candidate is not None}
        told = not self.settings or any(one.cause is not None for one in report.sources)
        return not report.aligned and found == {self.path} and told


FAULTS = (
    Fault("bn_eps", "conv", "inner", settings=True, recorded=True),
    Fault("momentum", "conv", "norm", settings=True),
    Fault("padding", "conv", "down", recorded=True),
    Fault("residual", "conv", ""),
    Fault("corners", "conv", ""),
    Fault("border", "warp", "", recorded=True),
    Fault("ln_eps", "gpt", "blocks.1.ln_1", settings=True),
    Fault("gelu", "gpt", "blocks.1.act", settings=True),
    Fault("scale", "gpt", "blocks.1.attention", recorded=True),
    Fault("mask", "gpt", "blocks.1.attention", recorded=True),
    Fault("heads", "gpt", "blocks.1.attention", recorded=True),
    Fault("upcast", "gpt", "blocks.1.attention"),
    Fault("transposed", "gpt", "blocks.1"),
    Fault("bias", "gpt", "blocks.1"),
    Fault("detach", "gpt", "blocks.1"),
    Fault("offset", "gpt", ""),
    Fault("flip", "recurrent", ""),
    Fault("mean", "bags", "bag", recorded=True),
    Fault("scattered", "bags", ""),
    Fault("rate", "drop", "drop", settings=True),
    Fault("behind", "drop", "norm", settings=True),
)
