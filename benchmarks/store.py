"""Measure what recording a training step costs, and what comparing two recorded runs costs.

Run ``python benchmarks/store.py`` (``record``, ``compare``, ``large`` or ``all``; ``--json`` for a machine).

The model is a GPT of 98 million parameters (12 blocks of width 768, 12 heads, a vocabulary of 16,384 tied to the
head), trained in float32 by AdamW on 4 sequences of 128 tokens, on one thread.

*record*: one process takes turns: a plain step, then one step in each way of recording, as many times as asked; each
figure is the median of the turns after the first. A recorded turn is the second step of a recording of two: the first
also writes the weights that the run starts from (told beside). CPU seconds are those of the whole process, its writing
thread included. Peak RSS is of a process of its own for each way. Bytes are what a directory of that one step takes on
disk, beside what one file for each tensor would take: every tensor that each call takes and gives, its gradient, the
parameters' gradients, and the parameters after the step, no header counted.

*compare*: ``padiff.compare`` on two such directories of one step, whose models differ by rounding, or by nothing, in a
process without torch: bytes of both, by CPU second.

*large*: two directories that together hold 50 GB of values: see `large`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

AIMS = {"summary": 1.06, "tensors": 1.5, "bytes": 0.6, "gb_per_cpu_second": 3.0, "compare_rss_mb": 1000.0}
MSPROBE = {"summary": 1.11, "tensors": 2.61, "bytes": 1.81e9, "gb_per_cpu_second": 0.096}
WAYS: dict[str, dict[str, Any]] = {
    "summary": {"values": "summary"},
    "summary, operations": {"values": "summary", "operations": True},
    "tensors": {"values": "tensors"},
    "tensors, operations": {"values": "tensors", "operations": True},
}


# The training step -----------------------------------------------------------------------------------------------


def training(disturbed: float = 0.0) -> tuple[Any, Callable[[], Any]]:
    """Return the model, and what makes one training step of it; ``disturbed`` moves each weight, relatively."""
    import numpy as np
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    width, heads, vocabulary, length = 768, 12, 16384, 128

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            q, k, v = self.qkv(x).view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.attention, self.ln_2 = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks, self.ln = nn.ModuleList(Block() for _ in range(12)), nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)
            self.tokens.weight = self.head.weight
            for parameter in self.parameters():
                nn.init.normal_(parameter, 0.0, 0.02) if parameter.dim() > 1 else None

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    model = GPT()
    if disturbed:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 + disturbed * (torch.rand_like(parameter) - 0.5))
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, vocabulary, (4, length + 1)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step() -> Any:
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, vocabulary), ids[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, step


def recorded(folder: Path, steps: int = 1, disturbed: float = 0.0, **way: Any) -> None:
    """Record some steps."""
    import padiff

    model, step = training(disturbed)
    with padiff.record(model, folder, **way) as recorder:
        for _ in range(steps):
            recorder.step(step())
