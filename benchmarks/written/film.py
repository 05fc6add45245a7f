"""A U-Net's blocks, scaled and shifted by the time: two layers a block, against one for all with all scales first."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn as pnn
from paddle.nn import functional as pf
from torch import nn
from torch.nn import functional as tf

CHANNELS, BLOCKS, WAVES, EMBEDDED = 8, 3, 8, 32
_DRAWN = np.random.default_rng(0)
INPUTS = (
    _DRAWN.standard_normal((2, 3, 8, 8)).astype("float32"),
    (_DRAWN.random(2) * 50).astype("float32"),
)


class Block(nn.Module):
    """A residual block with its own scale and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, CHANNELS), nn.GroupNorm(2, CHANNELS)
        self.conv1 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.shift, self.scale = nn.Linear(EMBEDDED, CHANNELS), nn.Linear(EMBEDDED, CHANNELS)

    def forward(self, x: Any, time: Any) -> Any:
        h = self.norm2(self.conv1(tf.silu(self.norm1(x))))
        h = h * (1 + self.scale(time)[:, :, None, None]) + self.shift(time)[:, :, None, None]
        return x + self.conv2(tf.silu(h))


class Reference(nn.Module):
    """Predicts noise."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.out = nn.Conv2d(3, CHANNELS, 3, padding=1), nn.Conv2d(CHANNELS, 3, 3, padding=1)
        self.time, self.blocks = nn.Linear(2 * WAVES, EMBEDDED), nn.ModuleList([Block() for _ in range(BLOCKS)])

    def forward(self, x: Any, time: Any) -> Any:
        angles = time[:, None] * torch.exp(-torch.arange(WAVES) / WAVES * 6.0)
        embedded = tf.silu(self.time(torch.cat([angles.sin(), angles.cos()], 1)))
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, embedded)
        return self.out(x)


class PortedBlock(pnn.Layer):
    """A residual block that is given its scale and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_a, self.norm_b = pnn.GroupNorm(2, CHANNELS), pnn.GroupNorm(2, CHANNELS)
        self.conv_a = pnn.Conv2D(CHANNELS, CHANNELS, 3, padding=1)
        self.conv_b = pnn.Conv2D(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: Any, scale: Any, shift: Any) -> Any:
        h = self.norm_b(self.conv_a(pf.silu(self.norm_a(x))))
        h = h + h * scale.unsqueeze([-1, -2]) + shift.unsqueeze([-1, -2])
        return x + self.conv_b(pf.silu(h))


class Port(pnn.Layer):
    """The same with one layer for all scales, and behind them all shifts."""

    def __init__(self) -> None:
        super().__init__()
        self.film, self.embed = pnn.Linear(EMBEDDED, 2 * BLOCKS * CHANNELS), pnn.Linear(2 * WAVES, EMBEDDED)
        self.first, self.last = pnn.Conv2D(3, CHANNELS, 3, padding=1), pnn.Conv2D(CHANNELS, 3, 3, padding=1)
        self.layers = pnn.LayerList([PortedBlock() for _ in range(BLOCKS)])

    def forward(self, x: Any, time: Any) -> Any:
        angles = time.unsqueeze(1) * paddle.exp(-paddle.arange(WAVES, dtype="float32") / WAVES * 6.0)
        embedded = pf.silu(self.embed(paddle.concat([paddle.sin(angles), paddle.cos(angles)], 1)))
        parts = self.film(embedded).split(2 * BLOCKS, 1)
        x = self.first(x)
        for i, layer in enumerate(self.layers):
            x = layer(x, parts[i], parts[BLOCKS + i])
        return self.last(x)
