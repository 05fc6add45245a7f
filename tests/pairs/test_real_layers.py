"""Diff the layers that every framework brings along: recurrent ones, attention, transformers.

What is equal and what is not was established by hand, with copies of the weights made outside padiff.
"""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
import paddle
import pytest
import torch

import padiff

from . import zoo
from .judging import assert_aligned
from .zoo import native

EACH_WAY = pytest.mark.parametrize("frameworks", zoo.DIRECTIONS, ids="-".join)
MODES = pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
Frameworks = tuple[str, str]


def _sides(frameworks: Frameworks, build: Any, *, train: bool, **options: Any) -> tuple[Any, Any]:
    made = (native.set_mode(name, build(name, **options), train=train) for name in frameworks)
    first, second = made
    return first, second


def _steps(width: int = 8) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, 6, width)).astype("float32")


def _recurrent(framework: str, kind: str, layers: int, *, both_ways: bool) -> Any:
    if framework == "paddle":
        cls = getattr(paddle.nn, "SimpleRNN" if kind == "RNN" else kind)
        return cls(8, 5, num_layers=layers, direction="bidirect" if both_ways else "forward")
    nn = {"torch": torch.nn, "mindspore": mindspore.nn}[framework]
    return getattr(nn, kind)(8, 5, num_layers=layers, bidirectional=both_ways, batch_first=True)


@EACH_WAY
@MODES
@pytest.mark.parametrize(("layers", "both_ways"), [(1, False), (2, True)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_aligned(
    kind: str, layers: int, both_ways: bool, train: bool, frameworks: Frameworks
) -> None:
    sides = _sides(frameworks, _recurrent, train=train, kind=kind, layers=layers, both_ways=both_ways)
    # Paddle's recurrent kernels keep nothing for a backward pass in eval mode, and raise there.
    phase = "forward" if "paddle" in frameworks and not train else "both"
    assert_aligned(padiff.diff(*sides, (_steps(),), phase=phase))


def _layer(framework: str, *, dropout: float = 0.0, norm_first: bool = False, activation: str = "relu") -> Any:
    if framework == "paddle":
        return paddle.nn.TransformerEncoderLayer(
            8, 2, 16, dropout=dropout, activation=activation, normalize_before=norm_first
        )
    nn = {"torch": torch.nn, "mindspore": mindspore.nn}[framework]
    return nn.TransformerEncoderLayer(
        8, 2, 16, dropout=dropout, activation=activation, batch_first=True, norm_first=norm_first
    )


def _encoder(framework: str, **options: Any) -> Any:
    layer = _layer(framework, **options)
    if framework == "torch":
        return torch.nn.TransformerEncoder(layer, 2, norm=torch.nn.LayerNorm(8), enable_nested_tensor=False)
    if framework == "paddle":
        return paddle.nn.TransformerEncoder(layer, 2, norm=paddle.nn.LayerNorm(8))
    return mindspore.nn.TransformerEncoder(layer, 2, norm=mindspore.nn.LayerNorm((8,), epsilon=1e-5))


@EACH_WAY
@pytest.mark.parametrize(
    ("norm_first", "activation", "dropout", "train"),
    [
        (False, "relu", 0.0, False),
        (True, "gelu", 0.0, False),
        (False, "relu", 0.0, True),
        (True, "gelu", 0.0, True),
    ],
)
def test_transformer_encoders_are_aligned(
    dropout: float, norm_first: bool, activation: str, train: bool, frameworks: Frameworks
) -> None:
    options = {"dropout": dropout, "norm_first": norm_first, "activation": activation}
    assert_aligned(padiff.diff(*_sides(frameworks, _encoder, train=train, **options), (_steps(),)))


@EACH_WAY
def test_masks_are_the_users_business(frameworks: Frameworks) -> None:
    # torch and MindSpore: True hides; Paddle: True keeps.
    hidden = np.triu(np.ones((6, 6), dtype=bool), 1)
    sides = _sides(frameworks, _layer, train=False)
    masks = {"torch": hidden, "paddle": ~hidden, "mindspore": hidden}
    ours, theirs = ({"src": _steps(), "src_mask": masks[name]} for name in frameworks)
    assert_aligned(padiff.diff(*sides, ours, candidate_inputs=theirs))
    wrong = {**theirs, "src_mask": ~theirs["src_mask"]}
    assert not padiff.diff(*sides, ours, candidate_inputs=wrong).aligned


class TorchAttention(torch.nn.Module):
    """Use torch's attention, which returns the weights too."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attn(x, x, x)[0]


class PaddleAttention(paddle.nn.Layer):
    """Use Paddle's attention, which returns the output alone."""

    def __init__(self) -> None:
        super().__init__()
        self.mha = paddle.nn.MultiHeadAttention(8, 2)

    def forward(self, x: Any) -> Any:
        return self.mha(x)


class MindSporeAttention(mindspore.nn.Cell):
    """Use MindSpore's attention, without the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = mindspore.nn.MultiheadAttention(8, 2, batch_first=True)

    def construct(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=False)[0]


ATTENTION = {"torch": TorchAttention, "paddle": PaddleAttention, "mindspore": MindSporeAttention}


@EACH_WAY
@MODES
def test_attention_is_aligned(train: bool, frameworks: Frameworks) -> None:
    sides = _sides(frameworks, lambda framework: ATTENTION[framework](), train=train)
    assert_aligned(padiff.diff(*sides, (_steps(),)))
