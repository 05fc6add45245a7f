"""Say which Paddle class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name, so that nothing has to be imported. Paddle's Linear is ``(in, out)``,
its running averages are weighed by 1 - torch's momentum, and paddings have four spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from padiff.kinds import Habit, Part, Rule, Setting, Unit, same_padding

__all__ = ["HABITS", "STATISTICS", "TABLE"]

# Values in the catalogue's convention -----------------------------------------------------------------------


def _tuple(value: Any, axes: int) -> tuple[Any, ...]:
    """Return one value for each axis; a sequence with one entry stands for all."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, tuple | list):
        return (value,) * axes
    return tuple(value) * axes if len(value) == 1 and axes > 1 else tuple(value)


def _each(axes: int) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: _tuple(value, axes)


def _around(value: Any, axes: int, data_format: str) -> Any:
    """Return (before, after) pairs: from one number, one or two for each axis, or pairs for all axes."""
    if isinstance(value, str):
        return value.lower()
    flat = _tuple(value, axes)
    if isinstance(flat[0], tuple | list):
        spatial = flat[2:] if _format(data_format) == "NCHW" else flat[1:-1]
        return tuple(tuple(pair) for pair in (spatial if len(flat) == axes + 2 else flat))
    if len(flat) == 2 * axes:
        return tuple(zip(flat[::2], flat[1::2], strict=True))
    return tuple((one, one) for one in flat)


def _flat_pairs(axes: int) -> Callable[[Any], tuple[tuple[Any, Any], ...]]:
    """Return a converter of a pad's flat list, last axis first, to pairs, first axis first."""

    def pairs(value: Any) -> tuple[tuple[Any, Any], ...]:
        flat = _tuple(value, 2 * axes)
        return tuple(zip(flat[::2], flat[1::2], strict=True))[::-1]

    return pairs


def _format(value: Any) -> str:
    """Return NCHW for channels first in any number of axes, NHWC for channels last."""
    return "NHWC" if str(value).upper().endswith("C") else "NCHW"


def _complement(value: Any) -> Any:
    """Return torch's momentum for Paddle's, without the dust of the subtraction."""
    return None if value is None else round(1.0 - float(value), 12)


def _approximate(value: Any) -> str:
    return value if isinstance(value, str) else "tanh" if value else "none"


def _function_name(value: Any) -> str:
    return value if isinstance(value, str) else str(getattr(value, "__name__", type(value).__name__)).lower()


def _dropped(value: Any) -> str:
    """Return what Paddle's ``axis`` drops together: it lists the axes along which the mask varies."""
    if value is None:
        return "element"
    axes = (value,) if isinstance(value, int) else tuple(value)
    return {(0, 1): "channel", (0,): "sample"}.get(axes, f"axes {axes}")


def _sized(name: str) -> Callable[[Any], Any]:
    """Return a reader of an upsampling's size or scale: one for each spatial axis."""

    def read(module: Any) -> Any:
        value = getattr(module, name)
        return None if value is None else _tuple(value, _IMAGE_AXES.get(getattr(module, "mode", ""), 2))

    return read


_IMAGE_AXES = {"linear": 1, "trilinear": 3}


def _batch_statistics(module: Any) -> bool:
    """Return whether the batch's statistics are used: with ``use_global_stats=False`` in evaluation too."""
    return bool(module.training) if module._use_global_stats is None else not module._use_global_stats


def _act(module: Any) -> str | None:
    return module._act or None


def _old_batch_statistics(module: Any) -> bool:
    """Return the same for ``paddle.nn.BatchNorm``."""
    return not module._use_global_stats and bool(module.training or module._trainable_statistics)


def _padding_idx(module: Any) -> int | None:
    """Return the index from the front; before Paddle 3, which brought ``max_norm``, -1 stood for None."""
    index = module._padding_idx
    if index is None or (index == -1 and not hasattr(module, "_max_norm")):
        return None
    return int(index if index >= 0 else module._num_embeddings + index)


# Settings ---------------------------------------------------------------------------------------------------


def _constant(value: Any) -> Setting:
    return Setting(lambda module: value)


def _own(*names: str, **attributes: str) -> dict[str, Setting]:
    """Return settings that Paddle spells as the catalogue does, and those by another attribute.

    A leading underscore belongs to the attribute alone: the user typed the name without it.
    """
    pairs = {**{name: name for name in names}, **attributes}
    return {name: Setting(attribute, spelled=attribute.lstrip("_")) for name, attribute in pairs.items()}


_TRAINING = {"training": Setting("training")}
_EPS = _own(eps="_epsilon")


def _padding(axes: int, attribute: str, data_format: str) -> Setting:
    return Setting(
        attribute,
        spelled="padding",
        derive=lambda m: _around(getattr(m, attribute), axes, getattr(m, data_format, "NCHW")),
    )


def _conv_padding(axes: int) -> Setting:
    """Return a reader of a convolution's padding; with a stride, ``same`` goes by the size and stays a name."""
    given = _padding(axes, "_padding", "_data_format")

    def pairs(module: Any) -> Any:
        found = given.value(module)
        stride = _tuple(module._stride, axes)
        if found == "valid":
            return ((0, 0),) * axes
        if found != "same" or set(stride) != {1}:
            return found
        return same_padding(_tuple(module._kernel_size, axes), stride, _tuple(module._dilation, axes))

    return attrs.evolve(given, derive=pairs)


def _conv(axes: int, *, transposed: bool = False) -> dict[str, Setting]:
    outer = {"output_padding": Setting("output_padding", _each(axes), "output_padding")} if transposed else {}
    return {
        "stride": Setting("_stride", _each(axes), "stride"),
        "dilation": Setting("_dilation", _each(axes), "dilation"),
        "padding": _conv_padding(axes),
        **_own(padding_mode="_padding_mode", groups="_groups"),
        "data_format": Setting("_data_format", _format, "data_format"),
        **outer,
    }


def _pool(axes: int) -> dict[str, Setting]:
    kernel = "kernel_size" if axes == 1 else "ksize"
    return {
        "kernel_size": Setting(kernel, _each(axes), "kernel_size"),
        "stride": Setting(lambda m: getattr(m, kernel) if m.stride is None else m.stride, _each(axes), "stride"),
        "padding": _padding(axes, "padding", "data_format"),
        **_own("ceil_mode"),
    }


def _max_pool(axes: int) -> dict[str, Setting]:
    return {**_pool(axes), "dilation": _constant((1,) * axes)}


def _avg_pool(axes: int) -> dict[str, Setting]:
    return {
        **_pool(axes),
        "count_include_pad": Setting("exclusive", lambda exclusive: not exclusive, "exclusive"),
        "divisor": Setting(lambda m: getattr(m, "divisor", None), spelled="divisor_override"),
    }


def _adaptive(axes: int, attribute: str) -> dict[str, Setting]:
    return {"output_size": Setting(attribute, _each(axes), "output_size")}


_BATCH = {
    **_EPS,
    "momentum": Setting("_momentum", _complement, "momentum"),
    "training": Setting(_batch_statistics),
    "track": _constant(True),
}
_RECURRENT = {
    **_own("hidden_size", "num_layers", "dropout"),
    "bidirectional": Setting("num_directions", lambda number: number == 2, "direction"),
    "batch_first": Setting("time_major", lambda time_major: not time_major, "time_major"),
    **_TRAINING,
}
_LAYER = {
    "norm_first": Setting("normalize_before", bool, "normalize_before"),
    "activation": Setting(
        lambda m: getattr(m, "_config", {}).get("activation", m.activation), _function_name, "activation"
    ),
}


def _dropout(axis: str, mode: str = "upscale_in_train", p: str = "p") -> dict[str, Setting]:
    return {**_own(p=p), "mode": _constant(mode), **_TRAINING, "axis": _constant(axis)}


def _pad(axes: int) -> dict[str, Setting]:
    return {
        "padding": Setting("padding", _flat_pairs(axes), "padding"),
        "mode": Setting("_mode", spelled="mode"),
        "value": Setting(lambda m: m.value if m._mode == "constant" else 0.0, float, "value"),
    }


def _upsample(**settings: Setting) -> dict[str, Setting]:
    size, scale = (Setting(_sized(name), spelled=name) for name in ("size", "scale_factor"))
    return {"size": size, "scale": scale, **settings}


# Units ------------------------------------------------------------------------------------------------------


def _simple(kind: str, *roles: str, settings: Mapping[str, Setting] | None = None, **named: str | Part) -> Rule:
    """Return the rule of a class with one unit; ``named`` roles lie under another name or in a Part."""
    parts = {role: Part(role) for role in roles}
    parts |= {role: Part(part) if isinstance(part, str) else part for role, part in named.items()}
    return Rule(kind, {"": Unit(kind, parts)} if parts else {}, settings or {})


_CELL = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _layers(kind: str) -> Callable[[Any], Mapping[str, Unit]]:
    """Return the units of a recurrent module: one cell for each layer and direction."""

    def units(module: Any) -> Mapping[str, Unit]:
        found: dict[str, Unit] = {}
        for layer in range(module.num_layers):
            both = {"": "cell_fw", "_reverse": "cell_bw"} if module.num_directions == 2 else {"": "cell"}
            for suffix, cell in both.items():
                name, path = f"l{layer}{suffix}", f"{layer}.{cell}"
                native = getattr(module[layer], cell)
                parts = {role: Part(_exposed(module, native, role, f"{role}_{name}", path)) for role in _CELL}
                found[name] = Unit(f"{kind}_cell", parts)
                if getattr(module, "proj_size", 0):
                    projection = Part(f"{path}.weight_ho", transpose=(1, 0))
                    found[f"{name}_projection"] = Unit(None, {"weight_hr": projection})
        return found

    return units


def _exposed(module: Any, cell: Any, role: str, name: str, path: str) -> str:
    """Return the name under which a cell's parameter hangs at the module itself, else its path.

    Paddle hands those names out by counting: where a bias is left out, they stand for other parameters.
    """
    native = getattr(cell, role)
    return name if native is not None and module._parameters.get(name) is native else f"{path}.{role}"


# The table --------------------------------------------------------------------------------------------------

_TRANSPOSED = Part("weight", transpose=(1, 0))
_LINEAR = _simple("linear", weight=_TRANSPOSED, bias="bias")
_HEAD = _simple("linear", weight=_TRANSPOSED)
_TIED_HEAD = _simple("linear", weight="decoder_weight")
_RMS = _simple("rms_norm", "weight", settings=_own(eps="variance_epsilon"))
_RMS_EPS = _simple("rms_norm", "weight", settings=_own("eps"))
_RMS_EPSILON = _simple("rms_norm", "weight", settings=_own(eps="epsilon"))
_ERF = Rule("gelu", settings={"approximate": _constant("none")})
_TANH = Rule("gelu", settings={"approximate": _constant("tanh")})
_BATCH_ROLES = {"weight": "weight", "bias": "bias", "running_mean": "_mean", "running_var": "_variance"}
_EMBEDDING = _simple(
    "embedding",
    "weight",
    settings={"padding_idx": Setting(_padding_idx, spelled="padding_idx")},
)

_COMMON = {
    "Identity": Rule("identity"),
    "Linear": _LINEAR,
    "Bilinear": _simple("bilinear", "weight", bias=Part("bias", squeeze=0)),
    "Embedding": _EMBEDDING,
    "Dropout": Rule("dropout", settings={**_own("p", "mode"), **_TRAINING, "axis": Setting("axis", _dropped, "axis")}),
    "Dropout2D": Rule("dropout", settings=_dropout("channel")),
    "Dropout3D": Rule("dropout", settings=_dropout("channel")),
    "AlphaDropout": Rule("dropout", settings=_dropout("element", "alpha")),
    "FeatureAlphaDropout": Rule("dropout", settings=_dropout("channel", "alpha")),
    "Flatten": Rule("flatten", settings=_own(start="start_axis", end="stop_axis")),
    **{f"Pad{n}D": Rule("pad", settings=_pad(n)) for n in (1, 2, 3)},
    "Upsample": Rule("upsample", settings=_upsample(**_own("mode", "align_corners"))),
    "UpsamplingNearest2D": Rule(
        "upsample", settings=_upsample(mode=_constant("nearest"), align_corners=_constant(False))
    ),
    "UpsamplingBilinear2D": Rule(
        "upsample", settings=_upsample(mode=_constant("bilinear"), align_corners=_constant(True))
    ),
    "CosineSimilarity": Rule("cosine_similarity", settings=_own(axis="_axis", eps="_eps")),
    "Unfold": Rule(
        "unfold",
        settings={
            name: Setting(f"{name}s", _each(2), f"{name}s") for name in ("kernel_size", "stride", "padding", "dilation")
        },
    ),
}

_NORM = {
    "BatchNorm": _simple(
        "batch_norm",
        settings={**_BATCH, "training": Setting(_old_batch_statistics), "fused": Setting(_act, spelled="act")},
        **_BATCH_ROLES,
    ),
    **{f"BatchNorm{n}D": _simple("batch_norm", settings=_BATCH, **_BATCH_ROLES) for n in (1, 2, 3)},
    "SyncBatchNorm": _simple("batch_norm", settings=_BATCH, **_BATCH_ROLES),
    "LayerNorm": _simple(
        "layer_norm",
        "weight",
        "bias",
        settings={**_EPS, "normalized_shape": Setting("_normalized_shape", tuple, "normalized_shape")},
    ),
    "GroupNorm": _simple("group_norm", "weight", "bias", settings={**_EPS, **_own(groups="_num_groups")}),
    **{f"InstanceNorm{n}D": _simple("instance_norm", settings=_EPS, weight="scale", bias="bias") for n in (1, 2, 3)},
    "LocalResponseNorm": Rule("local_response_norm", settings=_own("size", "alpha", "beta", "k")),
}

_CONV = {
    **{f"Conv{n}D": _simple(f"conv{n}d", "weight", "bias", settings=_conv(n)) for n in (1, 2, 3)},
    **{
        f"Conv{n}DTranspose": _simple(f"conv_transpose{n}d", "weight", "bias", settings=_conv(n, transposed=True))
        for n in (1, 2, 3)
    },
}

_RNN = {
    "LSTM": Rule("lstm", _layers("lstm"), _RECURRENT),
    "GRU": Rule("gru", _layers("gru"), _RECURRENT),
    "SimpleRNN": Rule("rnn", _layers("rnn"), {**_RECURRENT, **_own("activation")}),
    "LSTMCell": _simple("lstm_cell", *_CELL),
    "GRUCell": _simple("gru_cell", *_CELL),
    "SimpleRNNCell": _simple("rnn_cell", *_CELL, settings=_own("activation")),
}

_TRANSFORMER = {
    "MultiHeadAttention": Rule(
        "attention", settings={**_own("num_heads", "dropout"), **_TRAINING, "batch_first": _constant(True)}
    ),
    "TransformerEncoderLayer": Rule("transformer_encoder_layer", settings=_LAYER),
    "TransformerDecoderLayer": Rule("transformer_decoder_layer", settings=_LAYER),
    "TransformerEncoder": Rule("transformer_encoder"),
    "TransformerDecoder": Rule("transformer_decoder"),
    "Transformer": Rule("transformer"),
}

_POOLING = {
    **{f"MaxPool{n}D": Rule(f"max_pool{n}d", settings=_max_pool(n)) for n in (1, 2, 3)},
    **{f"AvgPool{n}D": Rule(f"avg_pool{n}d", settings=_avg_pool(n)) for n in (1, 2, 3)},
    **{
        f"Adaptive{name}Pool{n}D": Rule(
            f"adaptive_{name.lower()}_pool{n}d",
            settings=_adaptive(n, "output_size" if n == 1 else "_output_size"),
        )
        for n in (1, 2, 3)
        for name in ("Avg", "Max")
    },
}

_ACTIVATION = {
    "PReLU": _simple("prelu", weight="_weight"),
    "ReLU": Rule("relu"),
    "ReLU6": Rule("relu6"),
    "Sigmoid": Rule("sigmoid"),
    "Tanh": Rule("tanh"),
    "Silu": Rule("silu"),
    "Swish": Rule("silu"),
    "Mish": Rule("mish"),
    "Softsign": Rule("softsign"),
    "Tanhshrink": Rule("tanhshrink"),
    "Hardswish": Rule("hardswish"),
    "Hardsigmoid": Rule("hardsigmoid"),
    "LogSigmoid": Rule("log_sigmoid"),
    "GELU": Rule("gelu", settings={"approximate": Setting("_approximate", _approximate, "approximate")}),
    "LeakyReLU": Rule("leaky_relu", settings=_own(slope="_negative_slope")),
    "ELU": Rule("elu", settings=_own(alpha="_alpha")),
    "CELU": Rule("celu", settings=_own(alpha="_alpha")),
    "SELU": Rule("selu"),
    "Softplus": Rule("softplus", settings=_own(beta="_beta", threshold="_threshold")),
    "Hardtanh": Rule("hardtanh", settings=_own(min="_min", max="_max")),
    "Softmax": Rule("softmax", settings=_own(axis="_axis")),
    "Softmax2D": Rule("softmax", settings={"axis": _constant(-3)}),
    "LogSoftmax": Rule("log_softmax", settings=_own(axis="_axis")),
    "GLU": Rule("glu", settings=_own(axis="_axis")),
}

_HEADS = {"llama": "Llama", "qwen": "QWen", "mixtral": "Mixtral"}


def _stored(transposed: bool) -> Part:
    """Return a weight that is stored as the catalogue has it, or the other way round."""
    return Part("weight") if transposed else _TRANSPOSED


_FILES: Mapping[str, Mapping[str, Rule]] = {
    "paddle.nn.layer.common": _COMMON,
    "paddle.nn.layer.norm": _NORM,
    "paddle.nn.layer.conv": _CONV,
    "paddle.nn.layer.rnn": _RNN,
    "paddle.nn.layer.transformer": _TRANSFORMER,
    "paddle.nn.layer.pooling": _POOLING,
    "paddle.nn.layer.activation": _ACTIVATION,
    "paddle.nn.layer.container": {"Sequential": Rule("sequential")},
    "paddle.nn.layer.vision": {
        "PixelShuffle": Rule("pixel_shuffle", settings=_own(factor="_upscale_factor")),
        "ChannelShuffle": Rule("channel_shuffle", settings=_own(groups="_groups")),
    },
    "paddle.incubate.nn.layer.fused_linear": {
        "FusedLinear": Rule(
            "linear",
            lambda m: {"": Unit("linear", {"weight": _stored(m.transpose_weight), "bias": Part("bias")})},
        ),
    },
    "paddle.distributed.fleet.layers.mpu.mp_layers": {
        "ColumnParallelLinear": _LINEAR,
        "RowParallelLinear": _LINEAR,
        "VocabParallelEmbedding": _simple("embedding", "weight"),
    },
    "paddlenlp.transformers.activations": {
        "GELUActivation": _ERF,
        "NewGELUActivation": _TANH,
        "FastGELUActivation": _TANH,
        "SiLUActivation": Rule("silu"),
        "MishActivation": Rule("mish"),
        "LinearActivation": Rule("identity"),
    },
    **{f"paddlenlp.transformers.{name}.modeling": {f"{head}LMHead": _HEAD} for name, head in _HEADS.items()},
}


TABLE: Mapping[str, Rule] = {f"{file}.{name}": rule for file, rules in _FILES.items() for name, rule in rules.items()}
"""The rule of each class, by qualified name."""

STATISTICS: Mapping[str, frozenset[str]] = {
    "paddle.nn.layer.norm._BatchNormBase": frozenset({"_mean", "_variance"}),
    "paddle.nn.layer.norm.BatchNorm": frozenset({"_mean", "_variance"}),
    "paddle.nn.layer.norm.SpectralNorm": frozenset({"weight_u", "weight_v"}),
}
"""What Paddle keeps among a class's parameters although it is a buffer: a forward pass changes it."""


HABITS = (
    Habit(r"RMSNorm$", ("weight", "variance_epsilon"), _RMS),
    Habit(r"RMSNorm$", ("weight", "eps"), _RMS_EPS),
    Habit(r"RMSNorm$", ("weight", "epsilon"), _RMS_EPSILON),
    Habit(r"^M?T5LayerNorm$", ("weight", "variance_epsilon"), _RMS),
    Habit(r"^(OPT|Bloom|Chat)\w*Head$", ("decoder_weight",), _TIED_HEAD),
    Habit(r"DropPath$", ("drop_prob",), Rule("dropout", settings=_dropout("sample", p="drop_prob"))),
)
"""Rules for classes that have no one qualified name."""
