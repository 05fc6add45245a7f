"""Check the table of kinds: each layer of Flax, with the parameters of its namesake in PyTorch, does the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flax import nnx

import padiff

RNGS = nnx.Rngs(0)


class TorchModel(torch.nn.Module):
    def __init__(self, layer: Any, take: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.take = layer, take

    def forward(self, x: Any) -> Any:
        return self.take(self.layer(x))


class FlaxModel(nnx.Module):
    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, x: Any) -> Any:
        return self.layer(x)


def randoms(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def same(x: Any) -> Any:
    return x


def first(x: Any) -> Any:
    return x[0]


VECTORS, SEQUENCE = randoms(5, 8), randoms(2, 5, 8)
IMAGES = {axes: randoms(2, 4, *(9, 8, 7)[:axes]) for axes in (1, 2, 3)}


def conv(axes: int, *, transposed: bool = False, **settings: Any) -> tuple[Any, Any, Any]:
    """Return a convolution of torch's, the same of Flax's, and images."""
    size = {1: 3, 2: (3, 2), 3: (3, 2, 3)}[axes]
    theirs = {"stride": "strides", "dilation": "kernel_dilation", "groups": "feature_group_count"}
    flax = {theirs.get(name, name): value for name, value in settings.items() if name != "torch"}
    ours = {
        **{k: v for k, v in settings.items() if k not in ("torch", "transpose_kernel")},
        **settings.get("torch", {}),
    }
    kind = f"Conv{'Transpose' if transposed else ''}{axes}d"
    cls = nnx.ConvTranspose if transposed else nnx.Conv
    torchs = getattr(torch.nn, kind)(4, 8, size, **ours)
    return torchs, cls(4, 8, (size,) if axes == 1 else size, **flax, rngs=RNGS), IMAGES[axes]


def behind_a_conv(ours: Any, theirs: Any) -> tuple[Any, Any, Any]:
    """Return both layers behind a convolution, which tells where images have their channels."""
    first, second, images = conv(2, padding=1)
    return torch.nn.Sequential(first, ours), nnx.Sequential(second, theirs), images


LAYERS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "linear": lambda: (torch.nn.Linear(8, 8), nnx.Linear(8, 8, rngs=RNGS), VECTORS),
    "linear without bias": lambda: (
        torch.nn.Linear(8, 3, bias=False),
        nnx.Linear(8, 3, use_bias=False, rngs=RNGS),
        VECTORS,
    ),
    "embedding": lambda: (torch.nn.Embedding(7, 3), nnx.Embed(7, 3, rngs=RNGS), np.arange(6) % 5),
    "layer norm": lambda: (torch.nn.LayerNorm(8), nnx.LayerNorm(8, epsilon=1e-5, rngs=RNGS), VECTORS),
    "rms norm": lambda: (torch.nn.RMSNorm(8, eps=1e-6), nnx.RMSNorm(8, rngs=RNGS), VECTORS),
    "group norm": lambda: behind_a_conv(
        torch.nn.GroupNorm(2, 8), nnx.GroupNorm(8, num_groups=2, epsilon=1e-5, rngs=RNGS)
    ),
    "instance norm": lambda: behind_a_conv(
        torch.nn.InstanceNorm2d(8, affine=True), nnx.InstanceNorm(8, epsilon=1e-5, rngs=RNGS)
    ),
    "batch norm": lambda: behind_a_conv(torch.nn.BatchNorm2d(8), nnx.BatchNorm(8, momentum=0.9, rngs=RNGS)),
    "prelu": lambda: (torch.nn.PReLU(), nnx.PReLU(), VECTORS),
    "attention": lambda: (
        torch.nn.MultiheadAttention(8, 2, batch_first=True),
        nnx.MultiHeadAttention(2, 8, decode=False, rngs=RNGS),
        SEQUENCE,
    ),
    "lstm": lambda: (
        torch.nn.LSTM(8, 4, batch_first=True),
        nnx.RNN(nnx.OptimizedLSTMCell(8, 4, rngs=RNGS)),
        SEQUENCE,
    ),
    "lstm with gates apart": lambda: (
        torch.nn.LSTM(8, 4, batch_first=True),
        nnx.RNN(nnx.LSTMCell(8, 4, rngs=RNGS)),
        SEQUENCE,
    ),
    "gru": lambda: (
        torch.nn.GRU(8, 4, batch_first=True),
        nnx.RNN(nnx.GRUCell(8, 4, rngs=RNGS)),
        SEQUENCE,
    ),
    "rnn": lambda: (
        torch.nn.RNN(8, 4, batch_first=True),
        nnx.RNN(nnx.SimpleCell(8, 4, rngs=RNGS)),
        SEQUENCE,
    ),
    "lstm in both directions": lambda: (
        torch.nn.LSTM(8, 4, batch_first=True, bidirectional=True),
        nnx.Bidirectional(*(nnx.RNN(nnx.OptimizedLSTMCell(8, 4, rngs=RNGS)) for _ in range(2))),
        SEQUENCE,
    ),
    "gru in both directions": lambda: (
        torch.nn.GRU(8, 4, batch_first=True, bidirectional=True),
        nnx.Bidirectional(*(nnx.RNN(nnx.GRUCell(8, 4, rngs=RNGS)) for _ in range(2))),
        SEQUENCE,
    ),
    **{f"conv {axes}d": lambda axes=axes: conv(axes, padding=1) for axes in (1, 2, 3)},
    "conv with stride, dilation and groups": lambda: conv(2, stride=2, dilation=2, groups=2, padding=(1, 2)),
    "conv VALID": lambda: conv(2, padding="VALID", torch={"padding": 0}),
    "conv SAME": lambda: conv(1, padding="SAME", torch={"padding": 1}),
    "conv CIRCULAR": lambda: conv(1, padding="CIRCULAR", torch={"padding": 1, "padding_mode": "circular"}),
    **{
        f"transposed conv {axes}d": lambda axes=axes: conv(
            axes, transposed=True, stride=2, padding="VALID", torch={"padding": 0}
        )
        for axes in (1, 2, 3)
    },
    "transposed conv that turns its kernel": lambda: conv(
        2, transposed=True, stride=2, padding="VALID", transpose_kernel=True, torch={"padding": 0}
    ),
    "transposed conv SAME": lambda: conv(1, transposed=True, padding="SAME", torch={"padding": 1}),
    "transposed conv with explicit padding": lambda: conv(
        1, transposed=True, stride=2, padding=((1, 1),), torch={"padding": 1}
    ),
}
RECURRENT = [name for name in LAYERS if name.startswith(("lstm", "gru", "rnn"))]
TAKES = dict.fromkeys(("attention", *RECURRENT), first)


def channels_last(array: Any) -> Any:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim > 2 and array is not SEQUENCE else array


@pytest.mark.parametrize(
    ("name", "reference"),
    # One layer is read from torch into Flax, the next one from Flax into torch: compiling them is most of the time.
    [pytest.param(name, ("torch", "flax")[index % 2], id=name) for index, name in enumerate(LAYERS)],
)
def test_a_layer_does_what_its_namesake_does(name: str, reference: str) -> None:
    ours, theirs, x = LAYERS[name]()
    if name == "attention":
        ours.forward = lambda x, inner=ours.forward: inner(x, x, x, need_weights=False)
    for path, parameter in ours.named_parameters():
        # What nnx.GRUCell does not have: the bias that the reset gate works on.
        std = 0.0 if "gru" in name and path.startswith("bias_hh") else 0.5
        torch.nn.init.normal_(parameter, std=std)
    sides = [(TorchModel(ours, TAKES.get(name, same)), x), (FlaxModel(theirs), channels_last(x))]
    (a, mine), (b, yours) = sides if reference == "torch" else sides[::-1]
    report = padiff.diff(a, b, {"x": mine}, candidate_inputs={"x": yours})
    assert report.aligned, str(report)
    assert report.transfer is not None
    assert report.transfer.verified == report.transfer.copied > 0 or not list(ours.parameters())
    assert not report.transfer.unmatched_reference
    assert not report.transfer.unmatched_candidate
    assert not any("in the reference, " in note.text for note in report.notes), report
