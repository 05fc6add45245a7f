"""Write the twins as one does in PyTorch; ``faults`` plants the mistakes that ports make."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, faults: Collection[str]) -> None:
        super().__init__()
        self.heads, self.faults = heads, faults
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x: Any) -> Any:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Any) -> Any:
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        width = x.shape[-1] if "scale" in self.faults else query.shape[-1]
        scores = query @ key.transpose(-2, -1) * width**-0.5
        merged = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        return self.out(merged)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, faults: Collection[str]) -> None:
        super().__init__()
        self.faults = faults
        self.norm1 = nn.LayerNorm(dim, eps=1e-6 if "eps" in faults else 1e-5)
        self.attention = Attention(dim, heads, faults)
        self.norm2 = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        kept = x.detach() if "detached" in self.faults else x
        attended = self.attention(self.norm1(x))
        x = attended if "residual" in self.faults else kept + attended
        wide = F.gelu(self.up(self.norm2(x)), approximate="tanh" if "gelu" in self.faults else "none")
        return x + self.dropout(self.down(wide))


class Encoder(nn.Module):
    def __init__(self, faults: Collection[str]) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.position = nn.Parameter(torch.randn(1, 6, 16))
        self.blocks = nn.ModuleList([Block(16, 2, ()), Block(16, 2, faults)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Residual(nn.Module):
    def __init__(self, width: int, faults: Collection[str]) -> None:
        super().__init__()
        self.faults = faults
        mode = "reflect" if "padding" in faults else "zeros"
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, padding_mode=mode, bias=False)
        self.norm1 = nn.BatchNorm2d(width, momentum=0.01 if "momentum" in faults else 0.1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, groups=4)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Any) -> Any:
        inner = F.relu(self.norm1(self.conv1(x)))
        inner = self.norm2(self.conv2(inner))
        return x + inner if "relu" in self.faults else F.relu(x + inner)


class Convnet(nn.Module):
    def __init__(self, faults: Collection[str]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.body = nn.Sequential(Residual(8, ()), Residual(8, faults))
        self.head = nn.Linear(8, 5)

    def forward(self, image: Any) -> Any:
        x = F.max_pool2d(F.relu(self.stem(image)), 2)
        x = self.body(x)
        return self.head(x.mean((2, 3)))


def build(name: str, faults: Collection[str], seed: int, train: bool) -> Any:
    torch.manual_seed(seed)
    return {"encoder": Encoder, "convnet": Convnet}[name](faults).train(train)


def set_value(parameter: Any, value: Any) -> None:
    parameter.data.copy_(torch.from_numpy(value))
