"""Say which torch class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name, so that nothing has to be imported. The catalogue's layouts are
torch's; only a few third-party classes need a transform.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from padiff.kinds import Habit, Part, Rule, Setting, Unit, same_padding

__all__ = ["HABITS", "TABLE"]

# Values in the catalogue's convention -----------------------------------------------------------------------


def _tuple(value: Any, axes: int) -> tuple[Any, ...]:
    """Return one value for each axis; a tuple with one entry stands for all."""
    if not isinstance(value, tuple | list):
        return (value,) * axes
    return tuple(value) * axes if len(value) == 1 and axes > 1 else tuple(value)


def _each(axes: int) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: _tuple(value, axes)


def _around(axes: int) -> Callable[[Any], tuple[tuple[Any, Any], ...]]:
    """Return a converter of symmetric paddings to (before, after) pairs."""
    return lambda value: tuple((one, one) for one in _tuple(value, axes))


def _pairs(axes: int) -> Callable[[Any], Any]:
    """Return a converter of torch's flat padding, last axis first, to pairs, first axis first."""

    def pairs(value: Any) -> tuple[tuple[Any, Any], ...]:
        flat = _tuple(value, 2 * axes)
        return tuple(zip(flat[::2], flat[1::2], strict=True))[::-1]

    return pairs


def _function_name(value: Any) -> str:
    """Return the common name of an activation, given as a function, a module or a string."""
    if isinstance(value, str):
        return value
    name = getattr(value, "__name__", type(value).__name__).lower()
    return f"{name}_tanh" if getattr(value, "approximate", "none") == "tanh" else name


def _rms_eps(module: Any) -> float:
    """Return the epsilon of torch's RMSNorm, where None means the smallest step of the input's dtype."""
    import torch

    dtype = torch.float32 if module.weight is None else module.weight.dtype
    return torch.finfo(dtype).eps if module.eps is None else float(module.eps)


_IMAGE_AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def _sized(name: str) -> Callable[[Any], Any]:
    """Return a reader of an upsampling's size or scale, one for each axis; ``nearest`` is taken for 2-D."""

    def read(module: Any) -> Any:
        value = getattr(module, name)
        return None if value is None else _tuple(value, _IMAGE_AXES.get(module.mode, 2))

    return read


def _conv_padding(axes: int) -> Setting:
    def pairs(module: Any) -> tuple[tuple[Any, Any], ...]:
        if module.padding == "same":
            return same_padding(module.kernel_size, module.stride, module.dilation)
        return _around(axes)(0 if module.padding == "valid" else module.padding)

    return Setting("padding", spelled="padding", derive=pairs)


# Settings ---------------------------------------------------------------------------------------------------


def _constant(value: Any) -> Setting:
    return Setting(lambda module: value)


def _own(*names: str, **spelled: str) -> dict[str, Setting]:
    """Return settings that torch spells as the catalogue does, and those it spells otherwise."""
    pairs = {**{name: name for name in names}, **spelled}
    return {name: Setting(native, spelled=native) for name, native in pairs.items()}


def _shaped(axes: int, *names: str) -> dict[str, Setting]:
    return {name: Setting(name, _each(axes), name) for name in names}


_TRAINING = {"training": Setting("training")}


def _conv(axes: int, *, transposed: bool = False) -> dict[str, Setting]:
    return {
        **_shaped(axes, "stride", "dilation", *(("output_padding",) if transposed else ())),
        "padding": _conv_padding(axes),
        **_own("padding_mode", "groups"),
        "data_format": _constant("NCHW"),
    }


def _pool(axes: int) -> dict[str, Setting]:
    return {
        **_shaped(axes, "kernel_size"),
        "stride": Setting(lambda m: m.kernel_size if m.stride is None else m.stride, _each(axes), "stride"),
        "padding": Setting("padding", _around(axes), "padding"),
        **_own("ceil_mode"),
    }


def _avg_pool(axes: int) -> dict[str, Setting]:
    divisor = Setting(lambda m: getattr(m, "divisor_override", None), spelled="divisor_override")
    return {**_pool(axes), **_own("count_include_pad"), "divisor": divisor}


_BATCH = {
    **_own("eps", "momentum", track="track_running_stats"),
    # torch normalises with the batch's statistics where it keeps none of its own, also in evaluation.
    "training": Setting(lambda m: m.training or (m.running_mean is None and m.running_var is None)),
}
_FROZEN = {
    **_own("eps"),
    "training": _constant(False),
    "track": _constant(True),
}
_RECURRENT = {**_own("hidden_size", "num_layers", "bidirectional", "batch_first", "dropout"), **_TRAINING}
_LAYER = {**_own("norm_first"), "activation": Setting("activation", _function_name, "activation")}


def _dropout(axis: str, p: str = "p", mode: str = "upscale_in_train") -> dict[str, Setting]:
    return {**_own(p=p), "mode": _constant(mode), **_TRAINING, "axis": _constant(axis)}


def _pad(axes: int, mode: str) -> dict[str, Setting]:
    value = Setting("value", spelled="value") if mode == "constant" else _constant(0.0)
    return {"padding": Setting("padding", _pairs(axes), "padding"), "mode": _constant(mode), "value": value}


_UPSAMPLE = {
    "size": Setting(_sized("size"), spelled="size"),
    "scale": Setting(_sized("scale_factor"), spelled="scale_factor"),
    **_own("mode"),
    "align_corners": Setting("align_corners", bool, "align_corners"),
}

# Units ------------------------------------------------------------------------------------------------------


def _same(*roles: str) -> dict[str, Part]:
    return {role: Part(role) for role in roles}


_AFFINE = ("weight", "bias")
_NORM = (*_AFFINE, "running_mean", "running_var")
_CELL = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _simple(kind: str, *roles: str, **settings: Setting) -> Rule:
    """Return the rule of a class whose parameters are named and laid out as the catalogue's."""
    return Rule(kind, {"": Unit(kind, _same(*roles))} if roles else {}, settings)


def _layers(kind: str) -> Callable[[Any], Mapping[str, Unit]]:
    """Return the units of a recurrent module: one cell for each layer and direction."""

    def units(module: Any) -> Mapping[str, Unit]:
        found = {}
        for layer in range(module.num_layers):
            for suffix in ("", "_reverse") if module.bidirectional else ("",):
                name = f"l{layer}{suffix}"
                found[name] = Unit(f"{kind}_cell", {role: Part(f"{role}_{name}") for role in _CELL})
                if module.proj_size:
                    found[f"{name}_projection"] = Unit(None, {"weight_hr": Part(f"weight_hr_{name}")})
        return found

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
        found["appended"] = Unit(None, _same("bias_k", "bias_v"))
    return found


# The table --------------------------------------------------------------------------------------------------

_LINEAR = _simple("linear", *_AFFINE)
_RMS = _simple("rms_norm", "weight", **_own(eps="variance_epsilon"))
_GELU = Rule("gelu", settings=_own("approximate"))
_ERF = Rule("gelu", settings={"approximate": _constant("none")})
_TANH = Rule("gelu", settings={"approximate": _constant("tanh")})
_SHAPE = Setting("normalized_shape", tuple, "normalized_shape")
_LAYER_NORM = _simple("layer_norm", *_AFFINE, **_own("eps"), normalized_shape=_SHAPE)
_INSTANCE_NORM = _simple("instance_norm", *_NORM, **_own("eps", "momentum"))
_BATCH_NORM = _simple("batch_norm", *_NORM, **_BATCH)

_TORCH = {
    "linear.Identity": Rule("identity"),
    "linear.Linear": _LINEAR,
    "linear.Bilinear": _simple("bilinear", *_AFFINE),
    **{f"conv.Conv{n}d": _simple(f"conv{n}d", *_AFFINE, **_conv(n)) for n in (1, 2, 3)},
    **{
        f"conv.ConvTranspose{n}d": _simple(f"conv_transpose{n}d", *_AFFINE, **_conv(n, transposed=True))
        for n in (1, 2, 3)
    },
    "sparse.Embedding": _simple("embedding", "weight", **_own("padding_idx")),
    **{f"batchnorm.BatchNorm{n}d": _BATCH_NORM for n in (1, 2, 3)},
    "batchnorm.SyncBatchNorm": _BATCH_NORM,
    **{f"instancenorm.InstanceNorm{n}d": _INSTANCE_NORM for n in (1, 2, 3)},
    "normalization.LayerNorm": _LAYER_NORM,
    "normalization.GroupNorm": _simple("group_norm", *_AFFINE, **_own("eps", groups="num_groups")),
    "normalization.RMSNorm": _simple("rms_norm", "weight", eps=Setting(_rms_eps, spelled="eps")),
    "normalization.LocalResponseNorm": _simple("local_response_norm", **_own("size", "alpha", "beta", "k")),
    "normalization.CrossMapLRN2d": _simple("local_response_norm", **_own("size", "alpha", "beta", "k")),
    **{f"rnn.{kind.upper()}": Rule(kind, _layers(kind), _RECURRENT) for kind in ("lstm", "gru")},
    "rnn.RNN": Rule("rnn", _layers("rnn"), {**_RECURRENT, **_own(activation="nonlinearity")}),
    **{f"rnn.{kind.upper()}Cell": _simple(f"{kind}_cell", *_CELL) for kind in ("lstm", "gru")},
    "rnn.RNNCell": _simple("rnn_cell", *_CELL, **_own(activation="nonlinearity")),
    "activation.MultiheadAttention": Rule(
        "attention", _attention, {**_own("num_heads", "dropout", "batch_first"), **_TRAINING}
    ),
    "transformer.TransformerEncoderLayer": Rule("transformer_encoder_layer", settings=_LAYER),
    "transformer.TransformerDecoderLayer": Rule("transformer_decoder_layer", settings=_LAYER),
    "transformer.TransformerEncoder": Rule("transformer_encoder"),
    "transformer.TransformerDecoder": Rule("transformer_decoder"),
    "transformer.Transformer": Rule("transformer"),
    "dropout.Dropout": Rule("dropout", settings=_dropout("element")),
    **{f"dropout.Dropout{n}d": Rule("dropout", settings=_dropout("channel")) for n in (1, 2, 3)},
    "dropout.AlphaDropout": Rule("dropout", settings=_dropout("element", mode="alpha")),
    "dropout.FeatureAlphaDropout": Rule("dropout", settings=_dropout("channel", mode="alpha")),
    "flatten.Flatten": Rule("flatten", settings=_own(start="start_dim", end="end_dim")),
    **{
        f"pooling.MaxPool{n}d": Rule(f"max_pool{n}d", settings={**_pool(n), **_shaped(n, "dilation")})
        for n in (1, 2, 3)
    },
    **{f"pooling.AvgPool{n}d": Rule(f"avg_pool{n}d", settings=_avg_pool(n)) for n in (1, 2, 3)},
    **{
        f"pooling.Adaptive{name}Pool{n}d": Rule(f"adaptive_{kind}_pool{n}d", settings=_shaped(n, "output_size"))
        for n in (1, 2, 3)
        for name, kind in (("Avg", "avg"), ("Max", "max"))
    },
    "activation.PReLU": _simple("prelu", "weight"),
    "activation.ReLU": Rule("relu"),
    "activation.ReLU6": Rule("relu6"),
    "activation.Sigmoid": Rule("sigmoid"),
    "activation.Tanh": Rule("tanh"),
    "activation.SiLU": Rule("silu"),
    "activation.Mish": Rule("mish"),
    "activation.Softsign": Rule("softsign"),
    "activation.Tanhshrink": Rule("tanhshrink"),
    "activation.Hardswish": Rule("hardswish"),
    "activation.Hardsigmoid": Rule("hardsigmoid"),
    "activation.LogSigmoid": Rule("log_sigmoid"),
    "activation.GELU": _GELU,
    "activation.LeakyReLU": Rule("leaky_relu", settings=_own(slope="negative_slope")),
    "activation.ELU": Rule("elu", settings=_own("alpha")),
    "activation.CELU": Rule("celu", settings=_own("alpha")),
    "activation.SELU": Rule("selu"),
    "activation.Softplus": Rule("softplus", settings=_own("beta", "threshold")),
    "activation.Hardtanh": Rule("hardtanh", settings=_own(min="min_val", max="max_val")),
    "activation.Softmax": Rule("softmax", settings=_own(axis="dim")),
    "activation.Softmax2d": Rule("softmax", settings={"axis": _constant(-3)}),
    "activation.LogSoftmax": Rule("log_softmax", settings=_own(axis="dim")),
    "activation.GLU": Rule("glu", settings=_own(axis="dim")),
    **{
        f"padding.{name}Pad{n}d": Rule("pad", settings=_pad(n, mode))
        for name, mode in {
            "Zero": "constant",
            "Constant": "constant",
            "Reflection": "reflect",
            "Replication": "replicate",
            "Circular": "circular",
        }.items()
        for n in (1, 2, 3)
    },
    "upsampling.Upsample": Rule("upsample", settings=_UPSAMPLE),
    "pixelshuffle.PixelShuffle": Rule("pixel_shuffle", settings=_own(factor="upscale_factor")),
    "channelshuffle.ChannelShuffle": Rule("channel_shuffle", settings=_own("groups")),
    "fold.Unfold": Rule("unfold", settings=_shaped(2, "kernel_size", "stride", "padding", "dilation")),
    "container.Sequential": Rule("sequential"),
    "distance.CosineSimilarity": Rule("cosine_similarity", settings=_own("eps", axis="dim")),
}

_OTHERS = {
    "torchvision.ops.misc.FrozenBatchNorm2d": _simple("batch_norm", *_NORM, **_FROZEN),
    "torchvision.ops.stochastic_depth.StochasticDepth": Rule(
        "dropout",
        settings={**_dropout("sample"), "axis": Setting("mode", {"row": "sample", "batch": "batch"}.get)},
    ),
    "transformers.pytorch_utils.Conv1D": Rule(
        "linear", {"": Unit("linear", {"weight": Part("weight", transpose=(1, 0)), "bias": Part("bias")})}
    ),
    "transformers.activations.GELUActivation": _ERF,
    "transformers.activations.NewGELUActivation": _TANH,
    "transformers.activations.FastGELUActivation": _TANH,
    "transformers.activations.AccurateGELUActivation": _TANH,
    "transformers.activations.GELUTanh": _TANH,
    "transformers.activations.PytorchGELUTanh": _TANH,
    "transformers.activations.SiLUActivation": Rule("silu"),
    "transformers.activations.MishActivation": Rule("mish"),
    "transformers.activations.LinearActivation": Rule("identity"),
    "transformers.models.t5.modeling_t5.T5LayerNorm": _RMS,
    "transformers.models.longt5.modeling_longt5.LongT5LayerNorm": _RMS,
    "transformers.models.mt5.modeling_mt5.MT5LayerNorm": _RMS,
    "transformers.models.umt5.modeling_umt5.UMT5LayerNorm": _RMS,
    "timm.layers.norm.RmsNorm": _simple("rms_norm", "weight", **_own("eps")),
    "timm.layers.activations.Swish": Rule("silu"),
    "timm.layers.activations.GELUTanh": _TANH,
    "apex.normalization.fused_layer_norm.FusedLayerNorm": _LAYER_NORM,
    "apex.normalization.fused_layer_norm.FusedRMSNorm": _simple("rms_norm", "weight", **_own("eps")),
    "megatron.core.tensor_parallel.layers.ColumnParallelLinear": _LINEAR,
    "megatron.core.tensor_parallel.layers.RowParallelLinear": _LINEAR,
    "megatron.core.tensor_parallel.layers.VocabParallelEmbedding": _simple("embedding", "weight"),
}

TABLE: Mapping[str, Rule] = {**{f"torch.nn.modules.{name}": rule for name, rule in _TORCH.items()}, **_OTHERS}
"""The rule of each class, by qualified name."""


# Not every RMSNorm multiplies by its weight: Gemma's by 1 + weight, and it calls its epsilon otherwise than
# the copies of Llama's do.
HABITS = (
    Habit(r"RMSNorm$", ("weight", "variance_epsilon"), _RMS),
    Habit(r"^RMSNorm$", ("weight", "eps"), _simple("rms_norm", "weight", **_own("eps"))),
    Habit(r"DropPath$", ("drop_prob",), Rule("dropout", settings=_dropout("sample", p="drop_prob"))),
)
"""Rules for classes that have no one qualified name."""
