"""Say which MindSpore class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name, so that nothing has to be imported. ``mindspore.nn`` has names of its own
(gamma, moving_mean, pad_mode); ``mindspore.mint.nn`` spells most things as torch does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from padiff.layers import Part, Rule, Setting, Unit

__all__ = ["HABITS", "TABLE", "Habit", "note_size"]

# Values in the catalogue's convention -----------------------------------------------------------------------


def _tuple(value: Any, axes: int) -> tuple[Any, ...]:
    """Return one value for each axis: of more than that (batch, channels, an axis of length one) the last ones."""
    if not isinstance(value, tuple | list):
        return (value,) * axes
    return tuple(value) * axes if len(value) == 1 and axes > 1 else tuple(value)[-axes:]


def _each(axes: int) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: _tuple(value, axes)


def _around(axes: int) -> Callable[[Any], Any]:
    """Return a converter of symmetric paddings to (before, after) pairs; 'same' and 'valid' stay."""
    return lambda value: value if isinstance(value, str) else tuple((one, one) for one in _tuple(value, axes))


def _pairs(flat: Any, axes: int) -> tuple[tuple[int, int], ...]:
    """Return pairs, from one number or from (before, after) for each axis, the first axis first."""
    values = (flat,) * (2 * axes) if isinstance(flat, int) else tuple(flat)[-2 * axes :]
    return tuple(zip(values[::2], values[1::2], strict=True))


def _flat_pairs(axes: int) -> Callable[[Any], tuple[tuple[int, int], ...]]:
    """Return a converter of a pad's flat list, last axis first, to pairs, first axis first."""
    return lambda value: _pairs(value, axes)[::-1]


def _padded_axes(pairs: Any) -> tuple[tuple[int, int], ...]:
    """Return the pairs of all axes from the first padded one."""
    values = [tuple(pair) for pair in (pairs.tolist() if hasattr(pairs, "tolist") else pairs)]
    while values and values[0] == (0, 0):
        values.pop(0)
    return tuple(values)


def _complement(value: Any) -> float:
    """Return 1 - value, without the dust of the subtraction."""
    return round(1.0 - float(value), 12)


def _function_name(value: Any) -> str:
    """Return the common name of an activation, given as a function, a cell or a string."""
    if isinstance(value, str):
        return value
    name = str(getattr(value, "__name__", type(value).__name__)).lower()
    return f"{name}_tanh" if getattr(value, "approximate", "none") == "tanh" else name


def _one_axis(axis: Any) -> int:
    """Return the axis of an operation that keeps it in a tuple."""
    (one,) = axis if isinstance(axis, tuple) else (axis,)
    return int(one)


def _format(value: Any) -> str:
    """Return NCHW for channels first in any number of axes, NHWC for channels last."""
    return "NHWC" if str(value).upper().endswith("C") else "NCHW"


# Paddings ---------------------------------------------------------------------------------------------------

_sizes: WeakKeyDictionary[Any, tuple[int, ...]] = WeakKeyDictionary()


def note_size(native: Any, args: tuple[Any, ...]) -> None:
    """Remember the shape that a cell is called on, where ``pad_mode="same"`` makes its padding depend on it."""
    if str(getattr(native, "pad_mode", "")).lower() == "same" and args and hasattr(args[0], "shape"):
        _sizes[native] = tuple(args[0].shape)


class _Padding(tuple[tuple[int, int], ...]):
    """Be what a pad_mode really pads, and read as a user typed it."""

    typed: str

    def __new__(cls, pairs: tuple[tuple[int, int], ...], typed: str) -> _Padding:
        """Return the pairs, which read as ``typed``."""
        made = super().__new__(cls, pairs)
        made.typed = typed
        return made

    def __repr__(self) -> str:
        """Return what a user typed."""
        return self.typed


def _pad_mode(axes: int, flat: Callable[[Any], Any], *, transposed: bool = False) -> Setting:
    """Return a reader of what a pad_mode really pads, on the size that the cell last saw.

    With ``same`` the output has ``ceil(size / stride)`` elements, and what does not part evenly comes after. Before a
    first call the stride is taken to divide the size. A transposed convolution crops to ``size * stride`` instead.
    """

    def same(module: Any) -> tuple[tuple[int, int], ...]:
        kernel, stride = _tuple(module.kernel_size, axes), _tuple(module.stride, axes)
        dilation = _tuple(getattr(module, "dilation", 1), axes)
        sizes = (0,) * axes if transposed else _tuple(_sizes.get(module, 0), axes)
        reach = (d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
        totals = (max(r - (n % s or s), 0) for r, n, s in zip(reach, sizes, stride, strict=True))
        return tuple((total // 2, total - total // 2) for total in totals)

    def read(module: Any) -> _Padding:
        mode = module.pad_mode.lower()
        if mode == "pad":
            return _Padding(_pairs(flat(module), axes), f"{mode!r}, padding={flat(module)!r}")
        return _Padding(same(module) if mode == "same" else ((0, 0),) * axes, repr(mode))

    return Setting(read, tuple, "pad_mode")


def _primitive(module: Any) -> Any:
    """Return the operation that a pooling cell holds its settings in."""
    return module.max_pool if hasattr(module, "max_pool") else module.avg_pool


def _of_primitive(name: str, default: Any) -> Callable[[Any], Any]:
    return lambda module: getattr(_primitive(module), name, default)


def _pool_pads(module: Any) -> tuple[int, ...]:
    """Return (before, after) of all three axes: MindSpore pools in 3-D whatever the cell."""
    primitive = _primitive(module)
    symmetric = getattr(primitive, "pads", None)
    return primitive.pad_list if symmetric is None else tuple(one for pad in symmetric for one in (pad, pad))


# Settings ---------------------------------------------------------------------------------------------------


def _constant(value: Any) -> Setting:
    return Setting(lambda module: value)


def _own(*names: str, **spelled: str) -> dict[str, Setting]:
    """Return settings that MindSpore spells as the catalogue does, and those it spells otherwise."""
    pairs = {**{name: name for name in names}, **spelled}
    return {name: Setting(native, spelled=native) for name, native in pairs.items()}


def _shaped(axes: int, *names: str) -> dict[str, Setting]:
    return {name: Setting(name, _each(axes), name) for name in names}


_TRAINING = {"training": Setting("training")}


def _conv(axes: int, *, transposed: bool = False) -> dict[str, Setting]:
    outer = {"output_padding": Setting(lambda m: getattr(m, "output_padding", 0), _each(axes), "output_padding")}
    return {
        **_shaped(axes, "stride", "dilation"),
        "padding": _pad_mode(axes, lambda m: m.padding, transposed=transposed),
        "padding_mode": _constant("zeros"),
        **_own(groups="group"),
        "data_format": Setting("data_format", _format, "data_format"),
        **(outer if transposed else {}),
    }


def _mint_conv(axes: int, *, transposed: bool = False) -> dict[str, Setting]:
    return {
        **_shaped(axes, "stride", "dilation", *(("output_padding",) if transposed else ())),
        "padding": Setting("padding", _around(axes), "padding"),
        **_own("padding_mode", "groups"),
        "data_format": _constant("NCHW"),
    }


def _pool(axes: int) -> dict[str, Setting]:
    return {
        **_shaped(axes, "kernel_size", "stride"),
        "padding": _pad_mode(axes, _pool_pads),
        "ceil_mode": Setting(_of_primitive("ceil_mode", False), bool, "ceil_mode"),
    }


def _max_pool(axes: int) -> dict[str, Setting]:
    return {**_pool(axes), "dilation": Setting(_of_primitive("dilation", 1), _each(axes), "dilation")}


def _counts_padding(module: Any) -> bool:
    """Return whether zeros of the padding count: with pad_mode="same" never."""
    return module.pad_mode.lower() != "same" and bool(getattr(_primitive(module), "count_include_pad", True))


def _avg_pool(axes: int) -> dict[str, Setting]:
    return {
        **_pool(axes),
        "count_include_pad": Setting(_counts_padding, spelled="count_include_pad"),
        "divisor": Setting(_of_primitive("divisor_override", None), lambda value: value or None, "divisor_override"),
    }


def _mint_pool(axes: int, **settings: Setting) -> dict[str, Setting]:
    return {
        **_shaped(axes, "kernel_size"),
        "stride": Setting(lambda m: m.kernel_size if m.stride is None else m.stride, _each(axes), "stride"),
        "padding": Setting("padding", _around(axes), "padding"),
        **_own("ceil_mode"),
        **settings,
    }


def _mint_avg_pool(axes: int) -> dict[str, Setting]:
    divisor = Setting(lambda m: getattr(m, "divisor_override", None), spelled="divisor_override")
    return _mint_pool(axes, divisor=divisor, **_own("count_include_pad"))


def _output_size(axes: int, read: str | Callable[[Any], Any] = "output_size") -> dict[str, Setting]:
    """Return the size of an adaptive pooling, where -1 stands for the input's own."""

    def sizes(value: Any) -> tuple[int | None, ...]:
        values = _tuple(value.tolist() if hasattr(value, "tolist") else value, axes)
        return tuple(None if one == -1 else one for one in values)

    return {"output_size": Setting(read, sizes, "output_size")}


def _batch_statistics(module: Any) -> bool:
    given = module.use_batch_statistics
    return bool(module.training if given is None else given)


_BATCH = {
    **_own("eps"),
    # The cell keeps 1 - what the user typed.
    "momentum": Setting(lambda m: _complement(m.momentum), _complement, "momentum"),
    "training": Setting(_batch_statistics),
    "track": _constant(True),
}


def _within(child: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return settings that stand at a child."""

    def read(setting: Setting) -> Callable[[Any], Any]:
        return lambda module: setting.native(getattr(module, child))

    return {name: attrs.evolve(setting, read=read(setting)) for name, setting in settings.items()}


_MINT_BATCH = {
    **_own("eps", "momentum", track="track_running_stats"),
    "training": Setting(lambda m: m.training or (m.running_mean is None and m.running_var is None)),
}
_LINEAR_SETTINGS = {
    "fused": Setting("activation", lambda value: None if value is None else _function_name(value), "activation")
}
_RECURRENT = {**_own("hidden_size", "num_layers", "bidirectional", "batch_first", "dropout"), **_TRAINING}
_LAYER = {**_own("norm_first"), "activation": Setting("activation", _function_name, "activation")}


def _nonlinearity(module: Any) -> str:
    return "relu" if type(module.rnn).__name__.endswith("Relu") else "tanh"


def _normalized(module: Any) -> tuple[int, ...]:
    """Return the axes that are normalised: from begin_norm_axis, which need not be all that the weight has."""
    shape, begin = tuple(module.normalized_shape), module.begin_norm_axis
    return shape[begin:] if begin < 0 else shape


def _dropout(axis: str, p: Setting) -> dict[str, Setting]:
    return {"p": p, "mode": _constant("upscale_in_train"), **_TRAINING, "axis": _constant(axis)}


_KEPT = Setting(lambda m: _complement(m.keep_prob), spelled="p")
_KEPT_OR_DROPPED = Setting(lambda m: _complement(m.keep_prob) if m.p is None else m.p, float, "p")
_DROPPED = Setting("p", float, "p")


def _pad(axes: int, mode: str, value: Setting | None = None) -> dict[str, Setting]:
    return {
        "padding": Setting("padding", _flat_pairs(axes), "padding"),
        "mode": _constant(mode),
        "value": value or _constant(0.0),
    }


_REFLECTION = {
    "padding": Setting("padding", lambda pairs: tuple(map(tuple, pairs)), "padding"),
    "mode": _constant("reflect"),
    "value": _constant(0.0),
}
_PADDED = Setting("value", float, "value")
_UPSAMPLED = {"linear": 1, "trilinear": 3}


def _sized(name: str) -> Callable[[Any], Any]:
    """Return a reader of an upsampling's size or scale, one for each axis; ``nearest`` is taken for 2-D."""

    def read(module: Any) -> Any:
        value = getattr(module, name)
        return None if value is None else _tuple(value, _UPSAMPLED.get(getattr(module, "mode", ""), 2))

    return read


def _upsample(**settings: Setting) -> dict[str, Setting]:
    size, scale = (Setting(_sized(name), spelled=name) for name in ("size", "scale_factor"))
    return {"size": size, "scale": scale, **settings}


_LRN = {
    "size": Setting(lambda m: 2 * m.lrn_op.depth_radius + 1, spelled="2 * depth_radius + 1"),
    # torch divides alpha by the size, MindSpore does not.
    "alpha": Setting(lambda m: m.lrn_op.alpha * (2 * m.lrn_op.depth_radius + 1), spelled="alpha * size"),
    "beta": Setting(lambda m: m.lrn_op.beta, spelled="beta"),
    "k": Setting(lambda m: m.lrn_op.bias, spelled="bias"),
}
_ALIGNED = Setting("align_corners", bool, "align_corners")

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
        weight = turned if _format(module.data_format) == "NHWC" and not transposed else straight
        return {"": Unit(kind, {"weight": weight, "bias": Part("bias")})}

    return Rule(kind, units, _conv(axes, transposed=transposed))


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

_BATCH_NORM = _simple("batch_norm", settings=_BATCH, **_MOVING)
_MINT_BATCH_NORM = _simple("batch_norm", *_NORM, settings=_MINT_BATCH)
_DENSE = _simple("linear", *_AFFINE, settings=_LINEAR_SETTINGS)
_EMBEDDING_TABLE = _simple("embedding", weight="embedding_table", settings=_own("padding_idx"))
_RMS = _simple("rms_norm", "weight", settings=_own(eps="variance_epsilon"))

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
    "GELU": Rule(
        "gelu",
        settings={
            "approximate": Setting(
                lambda m: m.approximate == "tanh", lambda tanh: "tanh" if tanh else "none", "approximate"
            )
        },
    ),
    "FastGelu": Rule("gelu", settings={"approximate": _constant("sigmoid")}),
    "PReLU": _simple("prelu", weight="w"),
    "PReLUExt": _simple("prelu", "weight"),
    "LeakyReLU": Rule("leaky_relu", settings=_own(slope="alpha")),
    "ELU": Rule("elu", settings={"alpha": Setting(lambda m: m.elu.alpha, spelled="alpha")}),
    "CELU": Rule("celu", settings={"alpha": Setting(lambda m: m.celu.alpha, spelled="alpha")}),
    "Hardtanh": Rule("hardtanh", settings=_own(min="min_val", max="max_val")),
    "Softmax": Rule("softmax", settings={"axis": Setting(lambda m: m.softmax.axis, _one_axis, "axis")}),
    "SoftmaxExt": Rule("softmax", settings=_own(axis="dim")),
    "Softmax2d": Rule("softmax", settings={"axis": _constant(-3)}),
    "LogSoftmax": Rule("log_softmax", settings={"axis": Setting(lambda m: m.log_softmax.axis, spelled="axis")}),
    "LogSoftmaxExt": Rule("log_softmax", settings=_own(axis="dim")),
    "GLU": Rule("glu", settings={"axis": Setting("dim", spelled="axis")}),
    "LRN": Rule("local_response_norm", settings=_LRN),
}

_BASIC = {
    "Identity": Rule("identity"),
    "Dense": _DENSE,
    "Linear": _simple("linear", *_AFFINE),
    "Flatten": Rule("flatten", settings=_own(start="start_dim", end="end_dim")),
    "Dropout": Rule("dropout", settings=_dropout("element", _KEPT_OR_DROPPED)),
    "DropoutExt": Rule("dropout", settings=_dropout("element", _DROPPED)),
    "Dropout1d": Rule("dropout", settings=_dropout("channel", Setting("prob", float, "p"))),
    "Dropout2d": Rule("dropout", settings=_dropout("channel", _KEPT)),
    "Dropout2dExt": Rule("dropout", settings=_dropout("channel", _DROPPED)),
    "Dropout3d": Rule("dropout", settings=_dropout("channel", _KEPT)),
    "Upsample": Rule("upsample", settings=_upsample(**_own("mode"), align_corners=_ALIGNED)),
    "UpsampleExt": Rule("upsample", settings=_upsample(**_own("mode"), align_corners=_ALIGNED)),
    "UnfoldExt": Rule("unfold", settings=_shaped(2, "kernel_size", "stride", "padding", "dilation")),
    "Pad": Rule(
        "pad",
        settings={
            "padding": Setting("paddings", _padded_axes, "paddings"),
            "mode": Setting("mode", str.lower, "mode"),
            "value": _constant(0.0),
        },
    ),
}

_NORMALIZATION = {
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "SyncBatchNorm"), _BATCH_NORM),
    "BatchNorm3d": _simple("batch_norm", settings=_within("bn2d", _BATCH), **_MOVING_3D),
    "LayerNorm": _simple(
        "layer_norm",
        settings={**_own(eps="epsilon"), "normalized_shape": Setting(_normalized, spelled="normalized_shape")},
        **_SCALED,
    ),
    "LayerNormExt": _simple(
        "layer_norm",
        *_AFFINE,
        settings={**_own("eps"), "normalized_shape": Setting("normalized_shape", tuple, "normalized_shape")},
    ),
    "GroupNorm": _simple("group_norm", settings=_own("eps", groups="num_groups"), **_SCALED),
    **{f"InstanceNorm{n}d": _simple("instance_norm", settings=_own("eps", "momentum"), **_MOVING) for n in (1, 2, 3)},
}

_POOLING = {
    **{f"MaxPool{n}d": Rule(f"max_pool{n}d", settings=_max_pool(n)) for n in (1, 2, 3)},
    **{f"AvgPool{n}d": Rule(f"avg_pool{n}d", settings=_avg_pool(n)) for n in (1, 2, 3)},
    "MaxPool2dExt": Rule("max_pool2d", settings=_mint_pool(2, **_shaped(2, "dilation"))),
    **{f"AvgPool{n}dExt": Rule(f"avg_pool{n}d", settings=_mint_avg_pool(n)) for n in (1, 2, 3)},
    "AdaptiveAvgPool1d": Rule("adaptive_avg_pool1d", settings=_output_size(1)),
    "AdaptiveAvgPool2d": Rule(
        "adaptive_avg_pool2d", settings=_output_size(2, lambda m: m.adaptive_avgpool2d.output_size)
    ),
    "AdaptiveAvgPool3d": Rule(
        "adaptive_avg_pool3d", settings=_output_size(3, lambda m: m.adaptive_avg_pool3d.output_size)
    ),
    **{f"AdaptiveMaxPool{n}d": Rule(f"adaptive_max_pool{n}d", settings=_output_size(n)) for n in (1, 2, 3)},
}

_PADDING = {
    **{f"ConstantPad{n}d": Rule("pad", settings=_pad(n, "constant", _PADDED)) for n in (1, 2, 3)},
    "ZeroPad2d": Rule("pad", settings=_pad(2, "constant")),
    **{f"ReplicationPad{n}d": Rule("pad", settings=_pad(n, "replicate")) for n in (1, 2, 3)},
}

_RECURRENCE = {
    "rnns.LSTM": Rule("lstm", _layers("lstm"), _RECURRENT),
    "rnns.GRU": Rule("gru", _layers("gru"), _RECURRENT),
    "rnns.RNN": Rule(
        "rnn", _layers("rnn"), {**_RECURRENT, "activation": Setting(_nonlinearity, spelled="nonlinearity")}
    ),
    "rnn_cells.LSTMCell": _simple("lstm_cell", *_CELL),
    "rnn_cells.GRUCell": _simple("gru_cell", *_CELL),
    "rnn_cells.RNNCell": _simple("rnn_cell", *_CELL, settings=_own(activation="nonlinearity")),
}

_TRANSFORMER = {
    "MultiheadAttention": Rule("attention", _attention, {**_own("num_heads", "dropout", "batch_first"), **_TRAINING}),
    "TransformerEncoderLayer": Rule("transformer_encoder_layer", settings=_LAYER),
    "TransformerDecoderLayer": Rule("transformer_decoder_layer", settings=_LAYER),
    "TransformerEncoder": Rule("transformer_encoder"),
    "TransformerDecoder": Rule("transformer_decoder"),
    "Transformer": Rule("transformer"),
}

_SHUFFLE = Rule("pixel_shuffle", settings=_own(factor="upscale_factor"))

_FILES: Mapping[str, Mapping[str, Rule]] = {
    "nn.layer.activation": _ACTIVATION,
    "nn.layer.basic": _BASIC,
    "nn.layer.normalization": _NORMALIZATION,
    "nn.layer.pooling": _POOLING,
    "nn.layer.padding": {**_PADDING, **{f"ReflectionPad{n}d": Rule("pad", settings=_REFLECTION) for n in (1, 2, 3)}},
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
        "EmbeddingExt": _simple("embedding", "weight", settings=_own("padding_idx")),
    },
    "nn.layer.image": {"PixelShuffle": _SHUFFLE},
    "nn.layer.channel_shuffle": {"ChannelShuffle": Rule("channel_shuffle", settings=_own("groups"))},
    "nn.layer.container": {"SequentialCell": Rule("sequential")},
    "mint.nn": {
        "GELU": Rule("gelu", settings=_own("approximate")),
        "Hardtanh": Rule("hardtanh", settings=_own(min="min_val", max="max_val")),
        "Mish": Rule("mish"),
        "ReLU6": Rule("relu6"),
        "SELU": Rule("selu"),
        "PixelShuffle": _SHUFFLE,
        "UpsamplingNearest2d": Rule(
            "upsample", settings=_upsample(mode=_constant("nearest"), align_corners=_constant(False))
        ),
        "UpsamplingBilinear2d": Rule(
            "upsample", settings=_upsample(mode=_constant("bilinear"), align_corners=_constant(True))
        ),
    },
    "mint.nn.layer.activation": {
        "ELU": Rule("elu", settings=_own("alpha")),
        "GLU": Rule("glu", settings=_own(axis="dim")),
        "LogSigmoid": Rule("log_sigmoid"),
        "SiLU": Rule("silu"),
        "Sigmoid": Rule("sigmoid"),
        "Tanh": Rule("tanh"),
    },
    "mint.nn.layer.basic": {"Flatten": Rule("flatten", settings=_own(start="start_dim", end="end_dim"))},
    "mint.nn.layer.conv": {
        **{f"Conv{n}d": _simple(f"conv{n}d", *_AFFINE, settings=_mint_conv(n)) for n in (1, 2, 3)},
        "ConvTranspose2d": _simple("conv_transpose2d", *_AFFINE, settings=_mint_conv(2, transposed=True)),
    },
    "mint.nn.layer.normalization": {
        **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"), _MINT_BATCH_NORM),
        "GroupNorm": _simple("group_norm", *_AFFINE, settings=_own("eps", groups="num_groups")),
    },
    "mint.nn.layer.pooling": {
        **{f"AdaptiveAvgPool{n}d": Rule(f"adaptive_avg_pool{n}d", settings=_output_size(n)) for n in (1, 2, 3)},
        "AdaptiveMaxPool1d": Rule("adaptive_max_pool1d", settings=_output_size(1)),
    },
    "mint.nn.layer.padding": {
        **_PADDING,
        **{f"ZeroPad{n}d": Rule("pad", settings=_pad(n, "constant")) for n in (1, 3)},
        **{f"ReflectionPad{n}d": Rule("pad", settings=_pad(n, "reflect")) for n in (1, 2, 3)},
    },
}

TABLE: Mapping[str, Rule] = {
    f"mindspore.{file}.{name}": rule for file, rules in _FILES.items() for name, rule in rules.items()
}
"""The rule of each class, by qualified name."""


@attrs.frozen
class Habit:
    """Recognise a class that every model copies under a new name: by what it is called and what it holds."""

    name: str
    attributes: tuple[str, ...]
    rule: Rule

    def shown_by(self, module: Any) -> bool:
        """Return whether the class's name ends so, and the module has the attributes."""
        return bool(re.search(self.name, type(module).__name__)) and all(hasattr(module, a) for a in self.attributes)


HABITS = (
    Habit(r"RMSNorm$", ("weight", "variance_epsilon"), _RMS),
    Habit(r"RMSNorm$", ("weight", "eps"), _simple("rms_norm", "weight", settings=_own("eps"))),
    Habit(
        r"DropPath$",
        ("drop_prob",),
        Rule("dropout", settings=_dropout("sample", Setting("drop_prob", float, "drop_prob"))),
    ),
)
"""Rules for classes that have no one qualified name."""
