"""RWKV-6: mixes of a value with the one before it, a state that decays, and a norm written by hand in the port."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn as pnn
from paddle.nn import functional as pf
from torch import nn
from torch.nn import functional as tf

WIDTH, HEADS, WORDS, RANK, MIXED = 16, 2, 11, 4, 5
SIZE = WIDTH // HEADS
EPS = 64e-5
INPUTS = (np.random.default_rng(0).integers(0, WORDS, (2, 6)),)


class TimeMix(nn.Module):
    """Mixes over time; the vectors of all five mixes lie in one parameter, and so do their small matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.mu_x, self.mu = nn.Parameter(torch.rand(WIDTH)), nn.Parameter(torch.rand(MIXED, WIDTH))
        self.a = nn.Parameter(torch.randn(WIDTH, MIXED * RANK) * 0.3)
        self.b = nn.Parameter(torch.randn(MIXED, RANK, WIDTH) * 0.3)
        self.w0, self.u = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(HEADS, SIZE))
        self.wa = nn.Parameter(torch.randn(WIDTH, RANK) * 0.3)
        self.wb = nn.Parameter(torch.randn(RANK, WIDTH) * 0.3)
        for name in ("receptance", "key", "value", "gate", "output"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))
        self.ln_x = nn.GroupNorm(HEADS, WIDTH, eps=EPS)

    def forward(self, x: Any) -> Any:
        batch, time, _ = x.shape
        step = tf.pad(x, (0, 0, 1, -1)) - x
        low = torch.tanh((x + step * self.mu_x) @ self.a).view(batch * time, MIXED, RANK).transpose(0, 1)
        moved = torch.bmm(low, self.b).view(MIXED, batch, time, WIDTH)
        w, k, v, r, g = (x + step * (self.mu[i] + moved[i]) for i in range(MIXED))
        heads = (batch, time, HEADS, SIZE)
        r, k, v = self.receptance(r).view(heads), self.key(k).view(heads), self.value(v).view(heads)
        w = torch.exp(-torch.exp(self.w0 + torch.tanh(w @ self.wa) @ self.wb)).view(heads)
        state, made = x.new_zeros(batch, HEADS, SIZE, SIZE), []
        for i in range(time):
            new = k[:, i].unsqueeze(-1) * v[:, i].unsqueeze(-2)
            made.append((r[:, i].unsqueeze(-2) @ (state + self.u.unsqueeze(-1) * new)).squeeze(-2))
            state = state * w[:, i].unsqueeze(-1) + new
        out = self.ln_x(torch.stack(made, 1).reshape(batch * time, WIDTH)).view(batch, time, WIDTH)
        return self.output(out * tf.silu(self.gate(g)))


class ChannelMix(nn.Module):
    """Mixes channels; its two vectors lie apart."""

    def __init__(self) -> None:
        super().__init__()
        self.mk, self.mr = nn.Parameter(torch.rand(WIDTH)), nn.Parameter(torch.rand(WIDTH))
        self.key = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.value = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.receptance = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        step = tf.pad(x, (0, 0, 1, -1)) - x
        key = torch.relu(self.key(x + step * self.mk)) ** 2
        return torch.sigmoid(self.receptance(x + step * self.mr)) * self.value(key)


class Block(nn.Module):
    """Both mixes, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2, self.att, self.ffn = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), TimeMix(), ChannelMix()

    def forward(self, x: Any) -> Any:
        x = x + self.att(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class Reference(nn.Module):
    """A language model of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.ln0 = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.ln_out, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: Any) -> Any:
        x = self.ln0(self.emb(words))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_out(x))


def vector(owner: Any, *shape: int) -> Any:
    """Return a random parameter of a layer of Paddle."""
    return owner.create_parameter(list(shape), default_initializer=pnn.initializer.Normal(std=0.3))


def before(x: Any) -> Any:
    """Return each value's predecessor in time, and zeros for the first."""
    return paddle.concat([paddle.zeros_like(x[:, :1]), x[:, :-1]], 1)


class PortedTimeMix(pnn.Layer):
    """The same with a vector and a small matrix for each mix, and linear layers for what comes before them."""

    def __init__(self) -> None:
        super().__init__()
        self.maa_x = vector(self, 1, 1, WIDTH)
        for name in "wkvrg":
            setattr(self, f"maa_{name}", vector(self, 1, 1, WIDTH))
            setattr(self, f"up_{name}", vector(self, RANK, WIDTH))
        self.down = pnn.Linear(WIDTH, MIXED * RANK, bias_attr=False)
        self.decay, self.bonus = vector(self, 1, 1, WIDTH), vector(self, WIDTH)
        self.d1, self.d2 = pnn.Linear(WIDTH, RANK, bias_attr=False), pnn.Linear(RANK, WIDTH, bias_attr=False)
        for name in "rkvgo":
            setattr(self, name, pnn.Linear(WIDTH, WIDTH, bias_attr=False))
        self.gamma, self.beta = vector(self, WIDTH), vector(self, WIDTH)

    def forward(self, x: Any) -> Any:
        batch, time, _ = x.shape
        step = before(x) - x
        low = paddle.tanh(self.down(x + step * self.maa_x)).split(MIXED, -1)
        w, k, v, r, g = (
            x + step * (getattr(self, f"maa_{name}") + low[i] @ getattr(self, f"up_{name}"))
            for i, name in enumerate("wkvrg")
        )
        w = paddle.exp(-paddle.exp(self.decay + self.d2(paddle.tanh(self.d1(w)))))
        r, k, v, w = (
            one.reshape([batch, time, HEADS, SIZE]).transpose([1, 0, 2, 3])
            for one in (self.r(r), self.k(k), self.v(v), w)
        )
        bonus = self.bonus.reshape([HEADS, SIZE]).unsqueeze(-1)
        state, made = paddle.zeros([batch, HEADS, SIZE, SIZE]), []
        for i in range(time):
            new = paddle.einsum("bhi,bhj->bhij", k[i], v[i])
            made.append(paddle.einsum("bhi,bhij->bhj", r[i], state + bonus * new))
            state = w[i].unsqueeze(-1) * state + new
        y = paddle.stack(made, 1)
        centred = y - y.mean(-1, keepdim=True)
        y = centred / paddle.sqrt((centred**2).mean(-1, keepdim=True) + EPS)
        return self.o((y.reshape([batch, time, WIDTH]) * self.gamma + self.beta) * pf.silu(self.g(g)))


class PortedChannelMix(pnn.Layer):
    """The same with both vectors in one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = vector(self, 2, WIDTH)
        self.k = pnn.Linear(WIDTH, 2 * WIDTH, bias_attr=False)
        self.v = pnn.Linear(2 * WIDTH, WIDTH, bias_attr=False)
        self.r = pnn.Linear(WIDTH, WIDTH, bias_attr=False)

    def forward(self, x: Any) -> Any:
        mk, mr, last = self.mix[0], self.mix[1], before(x)
        key = pf.relu(self.k(x * (1 - mk) + last * mk))
        return self.v(key * key) * pf.sigmoid(self.r(x * (1 - mr) + last * mr))


class PortedBlock(pnn.Layer):
    """Both mixes, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.n1, self.n2 = pnn.LayerNorm(WIDTH), pnn.LayerNorm(WIDTH)
        self.time, self.channels = PortedTimeMix(), PortedChannelMix()

    def forward(self, x: Any) -> Any:
        x = x + self.time(self.n1(x))
        return x + self.channels(self.n2(x))


class Port(pnn.Layer):
    """A language model of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.n0 = pnn.Embedding(WORDS, WIDTH), pnn.LayerNorm(WIDTH)
        self.h = pnn.LayerList([PortedBlock(), PortedBlock()])
        self.nf, self.lm = pnn.LayerNorm(WIDTH), pnn.Linear(WIDTH, WORDS, bias_attr=False)

    def forward(self, words: Any) -> Any:
        x = self.n0(self.wte(words))
        for block in self.h:
            x = block(x)
        return self.lm(self.nf(x))
