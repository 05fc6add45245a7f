"""Diff blocks that hold their matrices themselves, in one order of axes here and in another there, apart or stacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

WIDTH, HIDDEN, BLOCKS = 8, 12, 3
X = np.random.default_rng(0).normal(size=(2, 5, WIDTH)).astype("float32")


class Block(torch.nn.Module):
    """Attention and a gated layer, by matrices ``[out, in]``."""

    def __init__(self) -> None:
        super().__init__()
        shapes = dict.fromkeys(("q", "k", "v", "o"), (WIDTH, WIDTH))
        shapes |= {"gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.randn(shape) * 0.2))

    def forward(self, x: Any) -> Any:
        q, k, v = (x @ one.T for one in (self.q, self.k, self.v))
        x = x + torch.softmax(q @ k.mT * WIDTH**-0.5, -1) @ v @ self.o.T
        return x + (torch.nn.functional.silu(x @ self.gate.T) * (x @ self.up.T)) @ self.down.T


class Scanned(paddle.nn.Layer):
    """The same by stacks ``[blocks, in, out]``, maybe with what takes one value side by side."""

    def __init__(self, fault: str = "", *, packed: bool) -> None:
        super().__init__()
        self.packed, self.fault = packed, fault
        shapes = {"o": (WIDTH, WIDTH), "down": (HIDDEN, WIDTH)}
        if packed:
            shapes |= {"qkv": (WIDTH, 3 * WIDTH), "gate_up": (WIDTH, 2 * HIDDEN)}
        else:
            shapes |= dict.fromkeys(("q", "k", "v"), (WIDTH, WIDTH)) | dict.fromkeys(("gate", "up"), (WIDTH, HIDDEN))
        draw = paddle.nn.initializer.Normal(0, 0.2)
        for name, shape in shapes.items():
            made = self.create_parameter([BLOCKS, *shape], default_initializer=draw)
            self.add_parameter(f"all_{name}", made)

    def forward(self, x: Any) -> Any:
        for n in range(BLOCKS):
            q, k, v = self._several(x, n, "q", "k", "v")
            k = k * 1.05 if (self.fault, n) == ("scale", 1) else k
            scores = paddle.nn.functional.softmax(q @ k.transpose([0, 2, 1]) * WIDTH**-0.5, -1)
            x = x + scores @ v @ self.all_o[n]
            gate, up = self._several(x, n, "gate", "up")
            x = x + (paddle.nn.functional.silu(gate) * up) @ self.all_down[n]
        return x

    def _several(self, x: Any, n: int, *names: str) -> Any:
        if not self.packed:
            return [x @ getattr(self, f"all_{name}")[n] for name in names]
        packed = self.all_qkv if len(names) == 3 else self.all_gate_up
        return paddle.split(x @ packed[n], len(names), -1)


@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
def test_blocks_by_hand_are_matched_with_stacks(packed: bool) -> None:
    """Neither side has a layer: which matrix is which is told by what the code sums over which axis."""
    torch.manual_seed(0)
    blocks = torch.nn.Sequential(*(Block() for _ in range(BLOCKS)))
    report = padiff.diff(blocks, Scanned(packed=packed), X)
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == (4 if packed else 7)
    report = padiff.diff(blocks, Scanned("scale", packed=packed), X)
    (source,) = report.sources
    assert (source.phase.value, source.candidate.path) == ("forward", ""), str(report)
    assert "1.05" in str(source.cause), str(report)
