"""DETR: an encoder and a decoder on the cells of an image; positions are added to queries and keys, as sines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn as pnn
from paddle.nn import functional as pf
from torch import nn
from torch.nn import functional as tf

WIDTH, HEADS, OBJECTS, INSIDE = 16, 2, 5, 32
INPUTS = (np.random.default_rng(0).standard_normal((2, 3, 16, 20)).astype("float32"),)


def positions(height: int, width: int) -> Any:
    """Return the sines and cosines of the rows, then of the columns: (WIDTH, height, width)."""
    rows, columns = torch.meshgrid(torch.arange(1, height + 1.0), torch.arange(1, width + 1.0), indexing="ij")
    places = torch.arange(WIDTH // 2)
    slow = 10000 ** (2 * (places // 2) / (WIDTH // 2))
    found = []
    for cells, count in ((rows, height), (columns, width)):
        angles = (cells / (count + 1e-6) * 2 * math.pi)[..., None] / slow
        found.append(torch.stack([angles[..., 0::2].sin(), angles[..., 1::2].cos()], 3).flatten(2))
    return torch.cat(found, 2).permute(2, 0, 1)


class Encoder(nn.Module):
    """One layer of the encoder: norms behind the sums."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.norm1, self.norm2 = (
            nn.MultiheadAttention(WIDTH, HEADS),
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH),
        )
        self.linear1, self.linear2 = nn.Linear(WIDTH, INSIDE), nn.Linear(INSIDE, WIDTH)

    def forward(self, x: Any, where: Any) -> Any:
        asked = x + where
        x = self.norm1(x + self.self_attn(asked, asked, x)[0])
        return self.norm2(x + self.linear2(tf.relu(self.linear1(x))))


class Decoder(nn.Module):
    """One layer of the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.multihead_attn = nn.MultiheadAttention(WIDTH, HEADS), nn.MultiheadAttention(WIDTH, HEADS)
        self.linear1, self.linear2 = nn.Linear(WIDTH, INSIDE), nn.Linear(INSIDE, WIDTH)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, x: Any, memory: Any, where: Any, asking: Any) -> Any:
        asked = x + asking
        x = self.norm1(x + self.self_attn(asked, asked, x)[0])
        x = self.norm2(x + self.multihead_attn(x + asking, memory + where, memory)[0])
        return self.norm3(x + self.linear2(tf.relu(self.linear1(x))))


class Reference(nn.Module):
    """Returns classes and boxes of each object, behind each layer of the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3, 2, 1), nn.ReLU()
        )
        self.project, self.query = nn.Conv2d(12, WIDTH, 1), nn.Embedding(OBJECTS, WIDTH)
        self.encoder = nn.ModuleList([Encoder(), Encoder()])
        self.decoder, self.norm = nn.ModuleList([Decoder(), Decoder()]), nn.LayerNorm(WIDTH)
        self.classes = nn.Linear(WIDTH, 4)
        self.boxes = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))

    def forward(self, image: Any) -> Any:
        cells = self.project(self.backbone(image))
        where = positions(*cells.shape[2:]).flatten(1).T[:, None]
        memory = cells.flatten(2).permute(2, 0, 1)
        for layer in self.encoder:
            memory = layer(memory, where)
        asking = self.query.weight[:, None].repeat(1, len(image), 1)
        x, made = torch.zeros_like(asking), []
        for layer in self.decoder:
            x = layer(x, memory, where, asking)
            made.append(self.norm(x))
        found = torch.stack(made).transpose(1, 2)
        return {"classes": self.classes(found), "boxes": self.boxes(found).sigmoid()}


class Attention(pnn.Layer):
    """Attention with a layer each for queries, keys and values; the batch comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (pnn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        def heads(x: Any) -> Any:
            return x.reshape([x.shape[0], x.shape[1], HEADS, WIDTH // HEADS]).transpose([0, 2, 1, 3])

        query, key, value = heads(self.q(query)), heads(self.k(key)), heads(self.v(value))
        share = pf.softmax(paddle.matmul(query, key, transpose_y=True) * (WIDTH // HEADS) ** -0.5, -1)
        return self.o((share @ value).transpose([0, 2, 1, 3]).flatten(2))


class PortedEncoder(pnn.Layer):
    """One layer of the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.att, self.n1, self.n2 = Attention(), pnn.LayerNorm(WIDTH), pnn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = pnn.Linear(WIDTH, INSIDE), pnn.Linear(INSIDE, WIDTH)

    def forward(self, x: Any, where: Any) -> Any:
        x = self.n1(x + self.att(x + where, x + where, x))
        return self.n2(x + self.fc2(pf.relu(self.fc1(x))))


class PortedDecoder(pnn.Layer):
    """One layer of the decoder; the memory's positions are added once for all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross = Attention(), Attention()
        self.n1, self.n2, self.n3 = (pnn.LayerNorm(WIDTH) for _ in range(3))
        self.fc1, self.fc2 = pnn.Linear(WIDTH, INSIDE), pnn.Linear(INSIDE, WIDTH)

    def forward(self, x: Any, keys: Any, memory: Any, asking: Any) -> Any:
        x = self.n1(x + self.own(x + asking, x + asking, x))
        x = self.n2(x + self.cross(x + asking, keys, memory))
        return self.n3(x + self.fc2(pf.relu(self.fc1(x))))


class Port(pnn.Layer):
    """The same, with a linear layer on cells, and positions by numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn, self.conv2 = pnn.Conv2D(3, 8, 3, 2, 1), pnn.BatchNorm2D(8), pnn.Conv2D(8, 12, 3, 2, 1)
        self.cells, self.asking = pnn.Linear(12, WIDTH), self.create_parameter([1, OBJECTS, WIDTH])
        self.encoder = pnn.LayerList([PortedEncoder(), PortedEncoder()])
        self.decoder, self.norm = pnn.LayerList([PortedDecoder(), PortedDecoder()]), pnn.LayerNorm(WIDTH)
        self.classes, self.box1, self.box2 = pnn.Linear(WIDTH, 4), pnn.Linear(WIDTH, WIDTH), pnn.Linear(WIDTH, 4)

    def sines(self, height: int, width: int) -> Any:
        places = np.arange(WIDTH // 2)
        slow = 10000.0 ** (2 * (places // 2) / (WIDTH // 2))

        def of(count: int) -> np.ndarray:
            angles = (np.arange(1, count + 1) / (count + 1e-6) * 2 * np.pi)[:, None] / slow
            return np.where(places % 2 == 0, np.sin(angles), np.cos(angles))

        shape = (height, width, WIDTH // 2)
        both = np.broadcast_to(of(height)[:, None], shape), np.broadcast_to(of(width)[None], shape)
        return paddle.to_tensor(np.concatenate(both, 2).reshape(1, height * width, WIDTH).astype("float32"))

    def forward(self, image: Any) -> Any:
        found = pf.relu(self.conv2(pf.relu(self.bn(self.conv1(image)))))
        where = self.sines(*found.shape[2:])
        memory = self.cells(found.flatten(2).transpose([0, 2, 1]))
        for layer in self.encoder:
            memory = layer(memory, where)
        asking = self.asking.expand([image.shape[0], OBJECTS, WIDTH])
        x, made = paddle.zeros_like(asking), []
        for layer in self.decoder:
            x = layer(x, memory + where, memory, asking)
            made.append(self.norm(x))
        found = paddle.stack(made)
        return {"classes": self.classes(found), "boxes": pf.sigmoid(self.box2(pf.relu(self.box1(found))))}
