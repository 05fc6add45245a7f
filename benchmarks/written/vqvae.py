"""A VQ-VAE: the nearest code stands for each place, and a moving mean of what it stood for becomes the code."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn as pnn
from paddle.nn import functional as pf
from torch import nn
from torch.nn import functional as tf

CHANNELS, CODES, KEPT, SMALL = 8, 6, 0.99, 1e-5
INPUTS = (np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype("float32"),)


class Codebook(nn.Module):
    """Buffers hold the codes, how often each was taken, and the sums of what took it."""

    def __init__(self) -> None:
        super().__init__()
        codes = torch.randn(CODES, CHANNELS)
        for name, values in (("embedding", codes), ("size", torch.ones(CODES)), ("sum", codes.clone())):
            self.register_buffer(name, values)

    def forward(self, z: Any) -> Any:
        last = z.permute(0, 2, 3, 1)
        flat = last.reshape(-1, CHANNELS)
        far = (flat**2).sum(1, keepdim=True) + (self.embedding**2).sum(1) - 2 * flat @ self.embedding.t()
        taken = tf.one_hot(far.argmin(1), CODES).to(flat.dtype)
        code = (taken @ self.embedding).view(last.shape)
        if self.training:
            with torch.no_grad():
                self.size.mul_(KEPT).add_(taken.sum(0), alpha=1 - KEPT)
                self.sum.mul_(KEPT).add_(taken.t() @ flat, alpha=1 - KEPT)
                count = self.size.sum()
                smooth = (self.size + SMALL) / (count + CODES * SMALL) * count
                self.embedding.copy_(self.sum / smooth.unsqueeze(1))
        loss = 0.25 * tf.mse_loss(code.detach(), last)
        code = last + (code - last).detach()
        share = taken.mean(0)
        return code.permute(0, 3, 1, 2).contiguous(), loss, torch.exp(-(share * torch.log(share + 1e-10)).sum())


class Reference(nn.Module):
    """Returns the image, the loss of the codes, and how many of them are in use."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.mix = nn.Conv2d(3, CHANNELS, 4, 2, 1), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.codes, self.unmix = Codebook(), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.up = nn.ConvTranspose2d(CHANNELS, 3, 4, 2, 1)

    def forward(self, x: Any) -> Any:
        code, loss, used = self.codes(self.mix(tf.relu(self.down(x))))
        return self.up(tf.relu(self.unmix(code))), loss, used


class PortedCodebook(pnn.Layer):
    """The same by differences, and a lookup."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("code", paddle.randn([CODES, CHANNELS]))
        self.register_buffer("count", paddle.ones([CODES]))
        self.register_buffer("total", paddle.randn([CODES, CHANNELS]))

    def forward(self, z: Any) -> Any:
        batch, channels, height, width = z.shape
        flat = z.reshape([batch, channels, height * width]).transpose([0, 2, 1])
        nearest = ((flat.unsqueeze(2) - self.code) ** 2).sum(-1).argmin(-1)
        code = pf.embedding(nearest, self.code)
        if self.training:
            with paddle.no_grad():
                taken = pf.one_hot(nearest.reshape([-1]), CODES)
                count = self.count * KEPT + (1 - KEPT) * taken.sum(0)
                total = self.total * KEPT + (1 - KEPT) * paddle.matmul(taken.T, flat.reshape([-1, channels]))
                every = count.sum()
                self.code.set_value(total / ((count + SMALL) / (every + CODES * SMALL) * every).unsqueeze(1))
                self.count.set_value(count)
                self.total.set_value(total)
        loss = 0.25 * ((flat - code.detach()) ** 2).mean()
        code = flat + (code - flat).detach()
        share = paddle.bincount(nearest.reshape([-1]), minlength=CODES).astype("float32") / (batch * height * width)
        used = paddle.exp(-(share * paddle.log(share + 1e-10)).sum())
        return code.transpose([0, 2, 1]).reshape([batch, channels, height, width]), loss, used


class Port(pnn.Layer):
    """The same with both halves in a list each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = pnn.Sequential(
            pnn.Conv2D(3, CHANNELS, 4, 2, 1), pnn.ReLU(), pnn.Conv2D(CHANNELS, CHANNELS, 3, padding=1)
        )
        self.quantize = PortedCodebook()
        self.decoder = pnn.Sequential(
            pnn.Conv2D(CHANNELS, CHANNELS, 3, padding=1), pnn.ReLU(), pnn.Conv2DTranspose(CHANNELS, 3, 4, 2, 1)
        )

    def forward(self, x: Any) -> Any:
        code, loss, used = self.quantize(self.encoder(x))
        return self.decoder(code), loss, used
