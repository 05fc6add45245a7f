"""Say which MindSpore class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name, so that nothing has to be imported. ``mindspore.nn`` has names of its own
(gamma, moving_mean, pad_mode); ``mindspore.mint.nn`` spells most things as torch does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from padiff.adapter import Habit, Part, Rule, Setting, Unit, classes, conversions, spelling
from padiff_mindspore import spelling as native

_SCALED = {"weight": "gamma", "bias": "beta"}
_MOVING = {**_SCALED, "running_mean": "moving_mean", "running_var": "moving_variance"}
_MOVING_3D = {role: f"bn2d.{name}" for role, name in _MOVING.items()}


def _convolution(axes: int, *, transposed: bool = False) -> Rule:
    """Return the rule of ``nn``'s convolutions; the one of 1-D is one of 2-D with a first axis of length one."""
    kind = f"conv_transpose{axes}d" if transposed else f"conv{axes}d"
    straight = Part("weight", squeeze=2) if axes == 1 else Part("weight")
    moved = Part("weight", transpose=(0, axes + 1, *range(1, axes + 1)))

    def units(module: Any) -> Mapping[str, Unit]:
        weight = moved if conversions.image_format(module.data_format) == "NHWC" and not transposed else straight
        return {"": Unit(kind, {"weight": weight, "bias": Part("bias")})}

    return Rule(kind, units, native.conv(axes, transposed=transposed))


_BATCH_NORM = spelling.simple("batch_norm", settings=native.BATCH, **_MOVING)
_INSTANCE_NORM = spelling.simple("instance_norm", settings=spelling.own("eps", "momentum"), **_MOVING)
_DENSE = spelling.simple("linear", *spelling.AFFINE, settings=native.LINEAR)
# Its padding_idx only begins that row with zeros: the row is trained as any other.
_TRAINED_PADDING = {"padding_idx": Setting("padding_idx", lambda index: None, "padding_idx")}
_EMBEDDING_TABLE = spelling.simple("embedding", weight="embedding_table", settings=_TRAINED_PADDING)


def _ext(names: str) -> Mapping[str, Rule]:
    """Return the rules of what ``mint.nn`` calls as torch does, and MindSpore itself with ``Ext`` behind it."""
    return {f"{name}Ext": rule for name, rule in classes.named(names).items()}


_ACTIVATION = {
    **classes.named("ReLU ReLU6 Sigmoid Tanh SiLU Mish Softsign Tanhshrink LogSigmoid SeLU Hardtanh Softmax2d"),
    **_ext("PReLU Softmax LogSoftmax"),
    "HSwish": Rule("hardswish"),
    "HSigmoid": Rule("hardsigmoid"),
    "GELU": Rule("gelu", settings=native.GELU),
    "FastGelu": Rule("gelu", settings={"approximate": spelling.constant("sigmoid")}),
    "PReLU": spelling.simple("prelu", weight="w"),
    "LeakyReLU": Rule("leaky_relu", settings=spelling.own(slope="alpha")),
    "ELU": Rule("elu", settings={"alpha": Setting(lambda m: m.elu.alpha, spelled="alpha")}),
    "CELU": Rule("celu", settings={"alpha": Setting(lambda m: m.celu.alpha, spelled="alpha")}),
    "Softmax": Rule("softmax", settings={"axis": Setting(lambda m: m.softmax.axis, native.one_axis, "axis")}),
    "LogSoftmax": Rule("log_softmax", settings={"axis": Setting(lambda m: m.log_softmax.axis, spelled="axis")}),
    "GLU": Rule("glu", settings={"axis": Setting("dim", spelled="axis")}),
    "LRN": Rule("local_response_norm", settings=native.LRN),
}

_BASIC = {
    **classes.named("Identity Linear Flatten Upsample"),
    **_ext("Dropout Dropout2d Upsample Unfold"),
    "Dense": _DENSE,
    "Dropout": Rule("dropout", settings=spelling.dropout("element", native.KEPT_OR_DROPPED)),
    "Dropout1d": Rule("dropout", settings=spelling.dropout("channel", Setting("prob", float, "p"))),
    "Dropout2d": Rule("dropout", settings=spelling.dropout("channel", native.KEPT)),
    "Dropout3d": Rule("dropout", settings=spelling.dropout("channel", native.KEPT)),
    "Pad": Rule(
        "pad",
        settings={
            "padding": Setting("paddings", native.padded_axes, "paddings"),
            "mode": Setting("mode", str.lower, "mode"),
            "value": spelling.constant(0.0),
        },
    ),
}

_NORMALIZATION = {
    **_ext("LayerNorm"),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "SyncBatchNorm"), _BATCH_NORM),
    "BatchNorm3d": spelling.simple("batch_norm", settings=native.within("bn2d", native.BATCH), **_MOVING_3D),
    "LayerNorm": spelling.simple("layer_norm", settings=native.LAYER_NORM, **_SCALED),
    "GroupNorm": spelling.simple("group_norm", settings=spelling.own("eps", groups="num_groups"), **_SCALED),
    **{f"InstanceNorm{n}d": _INSTANCE_NORM for n in (1, 2, 3)},
}

_POOLING = {
    **_ext("MaxPool2d AvgPool?d"),
    **{f"MaxPool{n}d": Rule(f"max_pool{n}d", settings=native.max_pool(n)) for n in (1, 2, 3)},
    **{f"AvgPool{n}d": Rule(f"avg_pool{n}d", settings=native.avg_pool(n)) for n in (1, 2, 3)},
    "AdaptiveAvgPool1d": Rule("adaptive_avg_pool1d", settings=native.output_size(1)),
    "AdaptiveAvgPool2d": Rule(
        "adaptive_avg_pool2d", settings=native.output_size(2, lambda m: m.adaptive_avgpool2d.output_size)
    ),
    "AdaptiveAvgPool3d": Rule(
        "adaptive_avg_pool3d", settings=native.output_size(3, lambda m: m.adaptive_avg_pool3d.output_size)
    ),
    **{f"AdaptiveMaxPool{n}d": Rule(f"adaptive_max_pool{n}d", settings=native.output_size(n)) for n in (1, 2, 3)},
}


_FILES: Mapping[str, Mapping[str, Rule]] = {
    "nn.layer.activation": _ACTIVATION,
    "nn.layer.basic": _BASIC,
    "nn.layer.normalization": _NORMALIZATION,
    "nn.layer.pooling": _POOLING,
    "nn.layer.padding": {
        **classes.named("ConstantPad?d ZeroPad2d ReplicationPad?d"),
        **{f"ReflectionPad{n}d": Rule("pad", settings=native.REFLECTION) for n in (1, 2, 3)},
    },
    "nn.layer.conv": {
        **{f"Conv{n}d": _convolution(n) for n in (1, 2, 3)},
        **{f"Conv{n}dTranspose": _convolution(n, transposed=True) for n in (1, 2, 3)},
    },
    "nn.layer.rnns": {**classes.named("LSTM GRU"), "RNN": Rule("rnn", spelling.recurrent_units("rnn"), native.RNN)},
    "nn.layer.rnn_cells": classes.named("LSTMCell GRUCell RNNCell"),
    "nn.layer.transformer": {**classes.named("MultiheadAttention"), **spelling.transformer()},
    "nn.layer.dense": {"BiDense": spelling.simple("bilinear", *spelling.AFFINE)},
    "nn.layer.embedding": {
        "Embedding": _EMBEDDING_TABLE,
        "EmbeddingLookup": spelling.simple("embedding", weight="embedding_table"),
        **_ext("Embedding"),
    },
    "nn.layer.image": classes.named("PixelShuffle"),
    "nn.layer.channel_shuffle": classes.named("ChannelShuffle"),
    "nn.layer.container": {"SequentialCell": Rule("sequential")},
    "mint.nn": classes.named("GELU Hardtanh Mish ReLU6 SELU PixelShuffle UpsamplingNearest2d UpsamplingBilinear2d"),
    "mint.nn.layer.activation": classes.named("ELU GLU LogSigmoid SiLU Sigmoid Tanh"),
    "mint.nn.layer.basic": classes.named("Flatten"),
    "mint.nn.layer.conv": classes.named("Conv?d ConvTranspose2d"),
    "mint.nn.layer.normalization": classes.named("BatchNorm?d SyncBatchNorm GroupNorm"),
    "mint.nn.layer.pooling": {
        **{f"AdaptiveAvgPool{n}d": Rule(f"adaptive_avg_pool{n}d", settings=native.output_size(n)) for n in (1, 2, 3)},
        "AdaptiveMaxPool1d": Rule("adaptive_max_pool1d", settings=native.output_size(1)),
    },
    "mint.nn.layer.padding": classes.named("ConstantPad?d ZeroPad?d ReplicationPad?d ReflectionPad?d"),
}

TABLE: Mapping[str, Rule] = {
    **{f"mindspore.{name}": rule for name, rule in spelling.table(_FILES).items()},
    "mindcv.models.layers.identity.Identity": Rule("identity"),
}
"""The rule of each class, by qualified name."""


HABITS = (
    Habit(r"RMSNorm$", ("weight", "variance_epsilon"), spelling.RMS_NORM),
    Habit(r"RMSNorm$", ("weight", "eps"), spelling.simple("rms_norm", "weight", settings=spelling.own("eps"))),
    spelling.DROP_PATH,
    Habit(
        r"DropPath$",
        ("keep_prob", "scale_by_keep"),
        Rule("dropout", settings=spelling.dropout("sample", attrs.evolve(native.KEPT, spelled="drop_prob"))),
    ),
)
"""Rules for classes that have no one qualified name."""
