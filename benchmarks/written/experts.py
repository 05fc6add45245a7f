"""A mixture of experts: a list of layers, of which each runs on its own words, against stacks along middle axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn as pnn
from paddle.nn import functional as pf
from torch import nn
from torch.nn import functional as tf

WIDTH, INSIDE, EXPERTS, CHOSEN = 8, 16, 4, 2
INPUTS = (np.random.default_rng(0).standard_normal((10, WIDTH)).astype("float32"),)


class Expert(nn.Module):
    """A gated feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3, self.w2 = nn.Linear(WIDTH, INSIDE), nn.Linear(WIDTH, INSIDE), nn.Linear(INSIDE, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.w2(tf.silu(self.w1(x)) * self.w3(x))


class Reference(nn.Module):
    """Sends each word to two experts, and all words to one that they share."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.shared = nn.Linear(WIDTH, EXPERTS, bias=False), Expert()
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, x: Any) -> Any:
        share, chosen = tf.softmax(self.gate(x), -1).topk(CHOSEN, -1)
        share = share / share.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            words, which = torch.where(chosen == place)
            y = y.index_add(0, words, expert(x[words]) * share[words, which, None])
        return y + self.shared(x)


class Port(pnn.Layer):
    """Runs all experts on all words; gates and what they gate lie in one parameter."""

    def __init__(self) -> None:
        super().__init__()
        drawn = pnn.initializer.Uniform(-0.3, 0.3)
        shapes = {
            "gate_up": [WIDTH, EXPERTS, 2 * INSIDE],
            "gate_up_bias": [EXPERTS, 2 * INSIDE],
            "down": [INSIDE, EXPERTS, WIDTH],
            "down_bias": [EXPERTS, WIDTH],
        }
        for name, shape in shapes.items():
            setattr(self, name, self.create_parameter(shape, default_initializer=drawn))
        self.router = pnn.Linear(WIDTH, EXPERTS, bias_attr=False)
        self.shared_in, self.shared_out = pnn.Linear(WIDTH, 2 * INSIDE), pnn.Linear(INSIDE, WIDTH)

    def forward(self, x: Any) -> Any:
        share, chosen = paddle.topk(pf.softmax(self.router(x), -1), CHOSEN, axis=-1)
        share = share / share.sum(-1, keepdim=True)
        share = (pf.one_hot(chosen, EXPERTS) * share.unsqueeze(-1)).sum(1)
        gate, up = (paddle.einsum("td,def->tef", x, self.gate_up) + self.gate_up_bias).chunk(2, -1)
        y = paddle.einsum("teh,hed->ted", pf.silu(gate) * up, self.down) + self.down_bias
        gate, up = self.shared_in(x).chunk(2, -1)
        return (y * share.unsqueeze(-1)).sum(1) + self.shared_out(pf.silu(gate) * up)
