"""Diff a decoder with all of an attention in one weight against one with keys and values in one, beside queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

WIDTH, HEADS = 8, 2
MEMORY = np.random.default_rng(0).standard_normal((2, 5, WIDTH), dtype=np.float32)


class Decoder(torch.nn.Module):
    """torch's own, on learned queries, time first."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerDecoderLayer(WIDTH, HEADS, 12, 0.0)
        self.layers, self.queries = torch.nn.TransformerDecoder(layer, 2), torch.nn.Parameter(torch.randn(3, WIDTH))
        for parameter in self.layers.parameters():
            torch.nn.init.normal_(parameter, std=0.4)

    def forward(self, memory: Any) -> Any:
        queries = self.queries.unsqueeze(1).expand(-1, len(memory), -1)
        return self.layers(queries, memory.transpose(0, 1)).transpose(0, 1)


class Attention(paddle.nn.Layer):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.out, self.q, self.kv = (paddle.nn.Linear(WIDTH, n * WIDTH) for n in (1, 1, 2))
        self.scale = scale * (WIDTH // HEADS) ** -0.5

    def forward(self, x: Any, memory: Any) -> Any:
        q = self.q(x).reshape([0, 0, HEADS, -1]).transpose([0, 2, 1, 3])
        k, v = self.kv(memory).reshape([0, 0, 2, HEADS, WIDTH // HEADS]).transpose([2, 0, 3, 1, 4])
        shares = paddle.nn.functional.softmax(q @ k.transpose([0, 1, 3, 2]) * self.scale)
        return self.out((shares @ v).transpose([0, 2, 1, 3]).flatten(2))


class Layer(paddle.nn.Layer):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.own, self.cross = Attention(1.0), Attention(scale)
        self.norms = paddle.nn.LayerList([paddle.nn.LayerNorm(WIDTH) for _ in range(3)])
        self.grow, self.shrink = paddle.nn.Linear(WIDTH, 12), paddle.nn.Linear(12, WIDTH)

    def forward(self, x: Any, memory: Any) -> Any:
        x = self.norms[0](x + self.own(x, x))
        x = self.norms[1](x + self.cross(x, memory))
        return self.norms[2](x + self.shrink(paddle.nn.functional.relu(self.grow(x))))


class ByHand(paddle.nn.Layer):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.queries = paddle.nn.Embedding(3, WIDTH)
        self.layers = paddle.nn.LayerList([Layer(1.0), Layer(scale)])

    def forward(self, memory: Any) -> Any:
        x = self.queries.weight.unsqueeze(0).expand([len(memory), 3, WIDTH])
        for layer in self.layers:
            x = layer(x, memory)
        return x


@pytest.mark.parametrize("scale", [1.0, 1.01], ids=["right", "wrong"])
def test_keys_and_values_of_a_memory_in_one(scale: float) -> None:
    """0.6 took an attention to itself for one to the memory, and found no counterpart of keys and values."""
    report = padiff.diff(Decoder(), ByHand(scale), MEMORY)
    assert {source.candidate.path for source in report.sources} == ({"layers.1.cross"} if scale != 1.0 else set())
    assert report.aligned == (scale == 1.0), str(report)
    assert report.transfer is not None
    assert not report.transfer.unmatched_candidate
