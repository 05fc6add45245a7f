"""Hold the MindSpore adapter to the interface, and to what is MindSpore's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import mindspore
from mindspore import mint, nn

from padiff.testing import AdapterTests
from padiff_mindspore.adapter import MindSporeAdapter

ADAPTER = MindSporeAdapter()


@cache
def examples() -> tuple[Any, ...]:
    """Return one of each class that small numbers do not make, and some that have more to read."""
    return (
        nn.Dense(2, 3, has_bias=False, activation="relu"),
        nn.Conv2d(2, 2, 3, 2, "pad", (0, 1, 1, 2)),
        nn.Conv1d(2, 2, 3, pad_mode="valid", has_bias=True),
        nn.Conv2dTranspose(2, 2, 3, 2, "pad", 1, 1),
        nn.MaxPool2d(3, 2, "pad", 1, 2, ceil_mode=True),
        nn.AvgPool2d(3, 2, "pad", 1, count_include_pad=False),
        nn.MaxPool3d(3, 2, "pad", (1, 0, 1), ceil_mode=True),
        nn.AvgPool3d(3, 2, "pad", 1, divisor_override=5),
        nn.AdaptiveAvgPool2d((None, 2)),
        nn.LayerNorm((4, 2), begin_norm_axis=-1),
        nn.GroupNorm(2, 4),
        mint.nn.GroupNorm(2, 4),
        nn.Dropout(0.25),
        nn.Pad(((0, 0), (1, 2)), "REFLECT"),
        nn.Upsample(scale_factor=2.0, mode="bilinear"),
        nn.LSTM(2, 3, 2, bidirectional=True, has_bias=False),
        nn.RNN(2, 3, nonlinearity="relu"),
        nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True),
        nn.TransformerEncoderLayer(4, 2, 4, activation="gelu"),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), 1),
        nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 4), 1),
        nn.Transformer(4, 2, 1, 1, 4),
        mint.nn.MaxPool2d(3, padding=1),
        mint.nn.BatchNorm2d(3, affine=False, track_running_stats=False),
    )


class TestMindSpore(AdapterTests):
    """Run the suite that specifies the interface."""

    name = "mindspore"
    dtypes = (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 "
        "bfloat16 float8_e4m3fn float8_e5m2"
    )

    def linear(self, n_in: int, n_out: int) -> Any:
        return nn.Dense(n_in, n_out, bias_init="normal")

    def module(self, forward: Callable[..., Any], **children: Any) -> Any:
        made = type("Made", (nn.Cell,), {"construct": forward})()
        for name, child in children.items():
            setattr(made, name, child)
        return made

    def examples(self) -> Iterable[Any]:
        return examples()

    def add_in_place(self, tensor: Any, number: float) -> None:
        tensor.copy_(tensor + number)

    def batch_norm(self, features: int) -> Any:
        return nn.BatchNorm1d(features).set_train()

    def set_training(self, module: Any, training: bool) -> None:
        module.set_train(training)

    def dropout(self, p: float) -> Any:
        return nn.Dropout(p=p).set_train()

    def freeze(self, parameter: Any) -> None:
        parameter.requires_grad = False

    def sgd(self, model: Any, lr: float) -> Any:
        return nn.SGD(model.trainable_params(), lr)

    def recomputed(self, module: Any, x: Any) -> Any:
        return mindspore.recompute(module, x, use_reentrant=False)

    def compiled(self, model: Any) -> Any:
        model.construct = mindspore.jit(model.construct)
        return model
