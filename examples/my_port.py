"""Show a port as one meets it: a small encoder in PyTorch, and its translation to Paddle, with two mistakes.

From this folder::

    padiff diff my_port:build_torch my_port:build_paddle --inputs my_port:inputs

Nothing ties the two: their names, their nesting and the layout of their weights differ, as in real ports.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import torch

WIDTH, HEADS, BLOCKS, WORDS = 32, 4, 2, 100


class TorchAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.proj = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        q, k, v = (linear(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for linear in self.qkv)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class TorchBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(WIDTH)
        self.attn = TorchAttention()
        self.norm2 = torch.nn.LayerNorm(WIDTH)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TorchEncoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(TorchBlock() for _ in range(BLOCKS))
        self.head = torch.nn.Linear(WIDTH, 2)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class PaddleAttention(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.query = paddle.nn.Linear(WIDTH, WIDTH)
        self.key = paddle.nn.Linear(WIDTH, WIDTH)
        self.value = paddle.nn.Linear(WIDTH, WIDTH)
        self.out = paddle.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        q, k, v = (
            linear(x).reshape([batch, length, HEADS, -1]).transpose([0, 2, 1, 3])
            for linear in (self.query, self.key, self.value)
        )
        # The first mistake: the scale is that of the whole width, not of one head.
        weights = paddle.nn.functional.softmax(q @ k.transpose([0, 1, 3, 2]) / math.sqrt(WIDTH))
        return self.out((weights @ v).transpose([0, 2, 1, 3]).flatten(2))


class PaddleBlock(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.attention = PaddleAttention()
        self.fc1 = paddle.nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = paddle.nn.Linear(4 * WIDTH, WIDTH)
        # The second mistake: PyTorch's LayerNorm has an epsilon of 1e-5 where none is given.
        self.ln_1 = paddle.nn.LayerNorm(WIDTH, epsilon=1e-12)
        self.ln_2 = paddle.nn.LayerNorm(WIDTH, epsilon=1e-12)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.ln_1(x))
        return x + self.fc2(paddle.nn.functional.gelu(self.fc1(self.ln_2(x))))


class PaddleEncoder(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.classifier = paddle.nn.Linear(WIDTH, 2)
        self.blocks = paddle.nn.LayerList([PaddleBlock() for _ in range(BLOCKS)])
        self.word_embeddings = paddle.nn.Embedding(WORDS, WIDTH)

    def forward(self, ids: Any) -> Any:
        x = self.word_embeddings(ids)
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.mean(1))


def build_torch() -> TorchEncoder:
    """Return the reference."""
    torch.manual_seed(0)
    return TorchEncoder()


def build_paddle() -> PaddleEncoder:
    """Return the port; its own weights do not matter, padiff copies the reference's into it."""
    paddle.seed(0)
    return PaddleEncoder()


def inputs() -> dict[str, np.ndarray]:
    """Return a batch of token ids; ``ids`` is the name of the argument in both forwards."""
    return {"ids": np.random.default_rng(0).integers(0, WORDS, (4, 12))}
