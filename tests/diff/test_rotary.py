"""Rotary positions that turn neighbours in torch, and halves of each head in Paddle: weights have to be converted."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff

WIDTH, HEADS, SIZE, LENGTH = 16, 2, 8, 5
X = np.random.default_rng(0).standard_normal((2, LENGTH, WIDTH), dtype=np.float32)
ANGLES = np.outer(np.arange(LENGTH), 100.0 ** (-np.arange(0, SIZE, 2) / SIZE)).astype(np.float32)[:, None]
HALVES = np.arange(WIDTH).reshape(HEADS, SIZE // 2, 2).transpose(0, 2, 1).ravel()
"""Which of the reference's rows the port's are."""


class Neighbours(torch.nn.Module):
    """One layer of attention without a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def turned(self, x: Any) -> Any:
        x, angles = x.unflatten(-1, (HEADS, SIZE // 2, 2)), torch.tensor(ANGLES)
        turned = (
            x[..., 0] * angles.cos() - x[..., 1] * angles.sin(),
            x[..., 0] * angles.sin() + x[..., 1] * angles.cos(),
        )
        return torch.stack(turned, -1).flatten(3)

    def forward(self, x: Any) -> Any:
        q, k, v = self.turned(self.wq(x)), self.turned(self.wk(x)), self.wv(x).unflatten(-1, (HEADS, SIZE))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / SIZE**0.5
        return self.wo(torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).flatten(2))


class Halves(paddle.nn.Layer):
    def __init__(self, packed: bool) -> None:
        super().__init__()
        names = ("qkv",) if packed else ("q_proj", "k_proj", "v_proj")
        for name in names:
            setattr(self, name, paddle.nn.Linear(WIDTH, 3 * WIDTH // len(names)))
        self.maps, self.o_proj = [getattr(self, name) for name in names], paddle.nn.Linear(WIDTH, WIDTH)

    def turned(self, x: Any) -> Any:
        a, b = x.reshape([*x.shape[:2], HEADS, SIZE]).chunk(2, -1)
        cos, sin = (paddle.to_tensor(one) for one in (np.cos(ANGLES), np.sin(ANGLES)))
        return paddle.concat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x: Any) -> Any:
        q, k, v = paddle.concat([one(x) for one in self.maps], -1).chunk(3, -1)
        scores = paddle.einsum("bihd,bjhd->bhij", self.turned(q), self.turned(k)) * SIZE**-0.5
        mixed = paddle.einsum(
            "bhij,bjhd->bihd", paddle.nn.functional.softmax(scores), v.reshape([*v.shape[:2], HEADS, -1])
        )
        return self.o_proj(mixed.flatten(2))


def load(port: Halves, net: Neighbours, *, converted: bool) -> None:
    order = HALVES if converted else np.arange(WIDTH)
    held = [[one.detach().numpy() for one in layer.parameters()] for layer in (net.wq, net.wk, net.wv, net.wo)]
    held[:2] = [[one[order] for one in both] for both in held[:2]]
    maps = [[np.concatenate(one) for one in zip(*held[:3], strict=True)]] if len(port.maps) == 1 else held[:3]
    for layer, (weight, bias) in zip((*port.maps, port.o_proj), (*maps, held[3]), strict=True):
        layer.weight.set_value(weight.T.copy())
        layer.bias.set_value(bias)


@pytest.mark.parametrize("transfer", [False, True], ids=["loaded", "copied"])
@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
def test_weights_that_were_converted_for_other_rotary_positions_are_right(packed: bool, transfer: bool) -> None:
    torch.manual_seed(0)
    net, port = Neighbours(), Halves(packed)
    load(port, net, converted=True)
    report = padiff.diff(net, port, X, transfer=transfer)
    assert report.aligned, report
    assert any(note.kind == "reordered" for note in report.notes)


def test_weights_that_were_not_converted_for_other_rotary_positions_are_told() -> None:
    torch.manual_seed(0)
    net, port = Neighbours(), Halves(packed=False)
    (source,) = padiff.diff(net, port, X).sources
    assert (source.candidate.path, source.candidate.class_name.rpartition(".")[2]) == ("", "Halves")
    said = "right where the rows of q_proj and k_proj are in another order (0, 2, 4, 6, 1, 3, 5, 7, ...): does one side"
    assert str(source.cause).startswith(said)
