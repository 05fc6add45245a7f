"""Say which MindSpore class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name, so that nothing has to be imported. ``mindspore.nn`` has names of its own
(gamma, moving_mean, pad_mode); ``mindspore.mint.nn`` spells most things as torch does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from padiff.kinds import Habit, Part, Rule, Setting, Unit
from padiff_mindspore import spelling

__all__ = ["HABITS", "TABLE"]

# Units ------------------------------------------------------------------------------------------------------


def _simple(kind: str, *roles: str, settings: Mapping[str, Setting] | None = None, **named: str | Part) -> Rule:
    """Return the rule of a class with one unit; ``named`` roles lie under another name or in a Part."""
    parts = {role: Part(role) for role in roles}
    parts |= {role: Part(part) if isinstance(part, str) else part for role, part in named.items()}
    return Rule(kind, {"": Unit(kind, parts)} if parts else {}, settings or {})


_AFFINE = ("weight", "bias")
_NORM = (*_AFFINE, "running_mean", "running_var")
_CELL = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_SCALED = {"weight": "gamma", "bias": "beta"}
_MOVING = {**_SCALED, "running_mean": "moving_mean", "running_var": "moving_variance"}
_MOVING_3D = {role: f"bn2d.{name}" for role, name in _MOVING.items()}


def _convolution(axes: int, *, transposed: bool = False) -> Rule:
    """Return the rule of ``nn``'s convolutions; the one of 1-D is one of 2-D with a first axis of length one."""
    kind = f"conv_transpose{axes}d" if transposed else f"conv{axes}d"
    straight = Part("weight", squeeze=2) if axes == 1 else Part("weight")
    turned = Part("weight", transpose=(0, axes + 1, *range(1, axes + 1)))

    def units(module: Any) -> Mapping[str, Unit]:
        weight = turned if spelling.image_format(module.data_format) == "NHWC" and not transposed else straight
        return {"": Unit(kind, {"weight": weight, "bias": Part("bias")})}

    return Rule(kind, units, spelling.conv(axes, transposed=transposed))


def _layers(kind: str) -> Callable[[Any], Mapping[str, Unit]]:
    """Return the units of a recurrent module: one cell for each layer and direction."""

    def units(module: Any) -> Mapping[str, Unit]:
        names = [f"l{layer}{end}" for layer in range(module.num_layers) for end in ("", "_reverse")]
        names = names if module.bidirectional else names[::2]
        return {name: Unit(f"{kind}_cell", {role: Part(f"{role}_{name}") for role in _CELL}) for name in names}

    return units


def _attention(module: Any) -> Mapping[str, Unit]:
    """Return q, k, v and out: packed in one weight where their widths agree, apart where they do not."""
    found = {}
    for index, name in enumerate("qkv"):
        packed = Part("in_proj_weight", piece=(index, 3))
        weight = packed if module._qkv_same_embed_dim else Part(f"{name}_proj_weight")
        found[name] = Unit("linear", {"weight": weight, "bias": Part("in_proj_bias", piece=(index, 3))})
    found["out"] = Unit("linear", {"weight": Part("out_proj.weight"), "bias": Part("out_proj.bias")})
    if module.bias_k is not None:
        found["appended"] = Unit(None, {name: Part(name) for name in ("bias_k", "bias_v")})
    return found


# The table --------------------------------------------------------------------------------------------------

_BATCH_NORM = _simple("batch_norm", settings=spelling.BATCH, **_MOVING)
_MINT_BATCH_NORM = _simple("batch_norm", *_NORM, settings=spelling.MINT_BATCH)
_INSTANCE_NORM = _simple("instance_norm", settings=spelling.own("eps", "momentum"), **_MOVING)
_DENSE = _simple("linear", *_AFFINE, settings=spelling.LINEAR)
_EMBEDDING_TABLE = _simple("embedding", weight="embedding_table", settings=spelling.own("padding_idx"))
_RMS = _simple("rms_norm", "weight", settings=spelling.own(eps="variance_epsilon"))

_ACTIVATION = {
    "ReLU": Rule("relu"),
    "ReLU6": Rule("relu6"),
    "Sigmoid": Rule("sigmoid"),
    "Tanh": Rule("tanh"),
    "SiLU": Rule("silu"),
    "Mish": Rule("mish"),
    "Softsign": Rule("softsign"),
    "Tanhshrink": Rule("tanhshrink"),
    "HSwish": Rule("hardswish"),
    "HSigmoid": Rule("hardsigmoid"),
    "LogSigmoid": Rule("log_sigmoid"),
    "SeLU": Rule("selu"),
    "GELU": Rule("gelu", settings=spelling.GELU),
    "FastGelu": Rule("gelu", settings={"approximate": spelling.constant("sigmoid")}),
    "PReLU": _simple("prelu", weight="w"),
    "PReLUExt": _simple("prelu", "weight"),
    "LeakyReLU": Rule("leaky_relu", settings=spelling.own(slope="alpha")),
    "ELU": Rule("elu", settings={"alpha": Setting(lambda m: m.elu.alpha, spelled="alpha")}),
    "CELU": Rule("celu", settings={"alpha": Setting(lambda m: m.celu.alpha, spelled="alpha")}),
    "Hardtanh": Rule("hardtanh", settings=spelling.own(min="min_val", max="max_val")),
    "Softmax": Rule("softmax", settings={"axis": Setting(lambda m: m.softmax.axis, spelling.one_axis, "axis")}),
    "SoftmaxExt": Rule("softmax", settings=spelling.own(axis="dim")),
    "Softmax2d": Rule("softmax", settings={"axis": spelling.constant(-3)}),
    "LogSoftmax": Rule("log_softmax", settings={"axis": Setting(lambda m: m.log_softmax.axis, spelled="axis")}),
    "LogSoftmaxExt": Rule("log_softmax", settings=spelling.own(axis="dim")),
    "GLU": Rule("glu", settings={"axis": Setting("dim", spelled="axis")}),
    "LRN": Rule("local_response_norm", settings=spelling.LRN),
}

_BASIC = {
    "Identity": Rule("identity"),
    "Dense": _DENSE,
    "Linear": _simple("linear", *_AFFINE),
    "Flatten": Rule("flatten", settings=spelling.own(start="start_dim", end="end_dim")),
    "Dropout": Rule("dropout", settings=spelling.dropout("element", spelling.KEPT_OR_DROPPED)),
    "DropoutExt": Rule("dropout", settings=spelling.dropout("element", spelling.DROPPED)),
    "Dropout1d": Rule("dropout", settings=spelling.dropout("channel", Setting("prob", float, "p"))),
    "Dropout2d": Rule("dropout", settings=spelling.dropout("channel", spelling.KEPT)),
    "Dropout2dExt": Rule("dropout", settings=spelling.dropout("channel", spelling.DROPPED)),
    "Dropout3d": Rule("dropout", settings=spelling.dropout("channel", spelling.KEPT)),
    "Upsample": Rule("upsample", settings=spelling.upsample(**spelling.own("mode"), align_corners=spelling.ALIGNED)),
    "UpsampleExt": Rule("upsample", settings=spelling.upsample(**spelling.own("mode"), align_corners=spelling.ALIGNED)),
    "UnfoldExt": Rule("unfold", settings=spelling.shaped(2, "kernel_size", "stride", "padding", "dilation")),
    "Pad": Rule(
        "pad",
        settings={
            "padding": Setting("paddings", spelling.padded_axes, "paddings"),
            "mode": Setting("mode", str.lower, "mode"),
            "value": spelling.constant(0.0),
        },
    ),
}

_NORMALIZATION = {
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "SyncBatchNorm"), _BATCH_NORM),
    "BatchNorm3d": _simple("batch_norm", settings=spelling.within("bn2d", spelling.BATCH), **_MOVING_3D),
    "LayerNorm": _simple(
        "layer_norm",
        settings=spelling.LAYER_NORM,
        **_SCALED,
    ),
    "LayerNormExt": _simple(
        "layer_norm",
        *_AFFINE,
        settings={**spelling.own("eps"), "normalized_shape": Setting("normalized_shape", tuple, "normalized_shape")},
    ),
    "GroupNorm": _simple("group_norm", settings=spelling.own("eps", groups="num_groups"), **_SCALED),
    **{
        f"InstanceNorm{n}d": _simple("instance_norm", settings=spelling.own("eps", "momentum"), **_MOVING)
        for n in (1, 2, 3)
    },
}

_POOLING = {
    **{f"MaxPool{n}d": Rule(f"max_pool{n}d", settings=spelling.max_pool(n)) for n in (1, 2, 3)},
    **{f"AvgPool{n}d": Rule(f"avg_pool{n}d", settings=spelling.avg_pool(n)) for n in (1, 2, 3)},
    "MaxPool2dExt": Rule("max_pool2d", settings=spelling.mint_pool(2, **spelling.shaped(2, "dilation"))),
    **{f"AvgPool{n}dExt": Rule(f"avg_pool{n}d", settings=spelling.mint_avg_pool(n)) for n in (1, 2, 3)},
    "AdaptiveAvgPool1d": Rule("adaptive_avg_pool1d", settings=spelling.output_size(1)),
    "AdaptiveAvgPool2d": Rule(
        "adaptive_avg_pool2d", settings=spelling.output_size(2, lambda m: m.adaptive_avgpool2d.output_size)
    ),
    "AdaptiveAvgPool3d": Rule(
        "adaptive_avg_pool3d", settings=spelling.output_size(3, lambda m: m.adaptive_avg_pool3d.output_size)
    ),
    **{f"AdaptiveMaxPool{n}d": Rule(f"adaptive_max_pool{n}d", settings=spelling.output_size(n)) for n in (1, 2, 3)},
}

_PADDING = {
    **{f"ConstantPad{n}d": Rule("pad", settings=spelling.pad(n, "constant", spelling.PADDED)) for n in (1, 2, 3)},
    "ZeroPad2d": Rule("pad", settings=spelling.pad(2, "constant")),
    **{f"ReplicationPad{n}d": Rule("pad", settings=spelling.pad(n, "replicate")) for n in (1, 2, 3)},
}

_RECURRENCE = {
    "rnns.LSTM": Rule("lstm", _layers("lstm"), spelling.RECURRENT),
    "rnns.GRU": Rule("gru", _layers("gru"), spelling.RECURRENT),
    "rnns.RNN": Rule(
        "rnn",
        _layers("rnn"),
        spelling.RNN,
    ),
    "rnn_cells.LSTMCell": _simple("lstm_cell", *_CELL),
    "rnn_cells.GRUCell": _simple("gru_cell", *_CELL),
    "rnn_cells.RNNCell": _simple("rnn_cell", *_CELL, settings=spelling.own(activation="nonlinearity")),
}

_TRANSFORMER = {
    "MultiheadAttention": Rule("attention", _attention, spelling.ATTENTION),
    "TransformerEncoderLayer": Rule("transformer_encoder_layer", settings=spelling.LAYER),
    "TransformerDecoderLayer": Rule("transformer_decoder_layer", settings=spelling.LAYER),
    "TransformerEncoder": Rule("transformer_encoder"),
    "TransformerDecoder": Rule("transformer_decoder"),
    "Transformer": Rule("transformer"),
}

_SHUFFLE = Rule("pixel_shuffle", settings=spelling.own(factor="upscale_factor"))

_FILES: Mapping[str, Mapping[str, Rule]] = {
    "nn.layer.activation": _ACTIVATION,
    "nn.layer.basic": _BASIC,
    "nn.layer.normalization": _NORMALIZATION,
    "nn.layer.pooling": _POOLING,
    "nn.layer.padding": {
        **_PADDING,
        **{f"ReflectionPad{n}d": Rule("pad", settings=spelling.REFLECTION) for n in (1, 2, 3)},
    },
    "nn.layer.conv": {
        **{f"Conv{n}d": _convolution(n) for n in (1, 2, 3)},
        **{f"Conv{n}dTranspose": _convolution(n, transposed=True) for n in (1, 2, 3)},
    },
    "nn.layer": _RECURRENCE,
    "nn.layer.transformer": _TRANSFORMER,
    "nn.layer.dense": {"BiDense": _simple("bilinear", *_AFFINE)},
    "nn.layer.embedding": {
        "Embedding": _EMBEDDING_TABLE,
        "EmbeddingLookup": _simple("embedding", weight="embedding_table"),
        "EmbeddingExt": _simple("embedding", "weight", settings=spelling.own("padding_idx")),
    },
    "nn.layer.image": {"PixelShuffle": _SHUFFLE},
    "nn.layer.channel_shuffle": {"ChannelShuffle": Rule("channel_shuffle", settings=spelling.own("groups"))},
    "nn.layer.container": {"SequentialCell": Rule("sequential")},
    "mint.nn": {
        "GELU": Rule("gelu", settings=spelling.own("approximate")),
        "Hardtanh": Rule("hardtanh", settings=spelling.own(min="min_val", max="max_val")),
        "Mish": Rule("mish"),
        "ReLU6": Rule("relu6"),
        "SELU": Rule("selu"),
        "PixelShuffle": _SHUFFLE,
        "UpsamplingNearest2d": Rule(
            "upsample",
            settings=spelling.NEAREST,
        ),
        "UpsamplingBilinear2d": Rule(
            "upsample",
            settings=spelling.BILINEAR,
        ),
    },
    "mint.nn.layer.activation": {
        "ELU": Rule("elu", settings=spelling.own("alpha")),
        "GLU": Rule("glu", settings=spelling.own(axis="dim")),
        "LogSigmoid": Rule("log_sigmoid"),
        "SiLU": Rule("silu"),
        "Sigmoid": Rule("sigmoid"),
        "Tanh": Rule("tanh"),
    },
    "mint.nn.layer.basic": {"Flatten": Rule("flatten", settings=spelling.own(start="start_dim", end="end_dim"))},
    "mint.nn.layer.conv": {
        **{f"Conv{n}d": _simple(f"conv{n}d", *_AFFINE, settings=spelling.mint_conv(n)) for n in (1, 2, 3)},
        "ConvTranspose2d": _simple("conv_transpose2d", *_AFFINE, settings=spelling.mint_conv(2, transposed=True)),
    },
    "mint.nn.layer.normalization": {
        **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"), _MINT_BATCH_NORM),
        "GroupNorm": _simple("group_norm", *_AFFINE, settings=spelling.own("eps", groups="num_groups")),
    },
    "mint.nn.layer.pooling": {
        **{f"AdaptiveAvgPool{n}d": Rule(f"adaptive_avg_pool{n}d", settings=spelling.output_size(n)) for n in (1, 2, 3)},
        "AdaptiveMaxPool1d": Rule("adaptive_max_pool1d", settings=spelling.output_size(1)),
    },
    "mint.nn.layer.padding": {
        **_PADDING,
        **{f"ZeroPad{n}d": Rule("pad", settings=spelling.pad(n, "constant")) for n in (1, 3)},
        **{f"ReflectionPad{n}d": Rule("pad", settings=spelling.pad(n, "reflect")) for n in (1, 2, 3)},
    },
}

TABLE: Mapping[str, Rule] = {
    **{f"mindspore.{file}.{name}": rule for file, rules in _FILES.items() for name, rule in rules.items()},
    "mindcv.models.layers.identity.Identity": Rule("identity"),
}
"""The rule of each class, by qualified name."""


HABITS = (
    Habit(r"RMSNorm$", ("weight", "variance_epsilon"), _RMS),
    Habit(r"RMSNorm$", ("weight", "eps"), _simple("rms_norm", "weight", settings=spelling.own("eps"))),
    Habit(
        r"DropPath$",
        ("drop_prob",),
        Rule("dropout", settings=spelling.dropout("sample", Setting("drop_prob", float, "drop_prob"))),
    ),
    Habit(
        r"DropPath$",
        ("keep_prob", "scale_by_keep"),
        Rule("dropout", settings=spelling.dropout("sample", attrs.evolve(spelling.KEPT, spelled="drop_prob"))),
    ),
)
"""Rules for classes that have no one qualified name."""
