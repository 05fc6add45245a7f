"""Say which Paddle class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name, so that nothing has to be imported. Paddle's Linear is ``(in, out)``,
its running averages are weighed by 1 - torch's momentum, and paddings have four spellings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from padiff.adapter import Habit, Part, Rule, Setting, Unit, classes, conversions, spelling

# Values in the catalogue's convention -----------------------------------------------------------------------


def _dropped(value: Any) -> str:
    """Return what Paddle's ``axis`` drops together: it lists the axes along which the mask varies."""
    if value is None:
        return "element"
    axes = (value,) if isinstance(value, int) else tuple(value)
    return {(0, 1): "channel", (0,): "sample"}.get(axes, f"axes {axes}")


def _batch_statistics(module: Any) -> bool:
    """Return whether the batch's statistics are used: with ``use_global_stats=False`` in evaluation too."""
    return bool(module.training) if module._use_global_stats is None else not module._use_global_stats


def _padding_idx(module: Any) -> int | None:
    """Return the index from the front."""
    index = module._padding_idx
    if index is None:
        return None
    return int(index if index >= 0 else module._num_embeddings + index)


# Settings ---------------------------------------------------------------------------------------------------

_EPS = spelling.own(eps="_epsilon")


def _conv(axes: int, *, transposed: bool = False) -> dict[str, Setting]:
    data_format = Setting("_data_format", conversions.image_format, "data_format")
    return spelling.conv(axes, transposed=transposed, mark="_", data_format=data_format)


def _pool(axes: int) -> dict[str, Setting]:
    return spelling.pool(axes, "kernel_size" if axes == 1 else "ksize", spelling.padding(axes))


def _avg_pool(axes: int) -> dict[str, Setting]:
    return {
        **_pool(axes),
        "count_include_pad": Setting("exclusive", lambda exclusive: not exclusive, "exclusive"),
        "divisor": Setting(lambda m: getattr(m, "divisor", None), spelled="divisor_override"),
    }


_BATCH = {
    **_EPS,
    "momentum": Setting("_momentum", conversions.complement, "momentum"),
    "training": Setting(_batch_statistics),
    "track": spelling.constant(True),
}
_OLD_BATCH = {
    **_BATCH,
    "training": Setting(lambda m: not m._use_global_stats and bool(m.training or m._trainable_statistics)),
    "fused": Setting(lambda m: m._act or None, spelled="act"),
}
_RECURRENT = {
    **spelling.own("hidden_size", "num_layers", "dropout"),
    "bidirectional": Setting("num_directions", lambda number: number == 2, "direction"),
    "batch_first": Setting("time_major", lambda time_major: not time_major, "time_major"),
    **spelling.TRAINING,
}
_LAYER = {
    "norm_first": Setting("normalize_before", bool, "normalize_before"),
    "activation": Setting(
        lambda m: getattr(m, "_config", {}).get("activation", m.activation), conversions.function_name, "activation"
    ),
}
_ATTENTION = {
    **spelling.own("num_heads", "dropout"),
    **spelling.TRAINING,
    "batch_first": spelling.constant(True),
}
_DROPOUT = {**spelling.dropout("element"), **spelling.own("mode"), "axis": Setting("axis", _dropped, "axis")}
_UNFOLD = {name: f"{name}s" for name in ("kernel_size", "stride", "padding", "dilation")}


def _approximate(value: Any) -> str:
    return value if isinstance(value, str) else "tanh" if value else "none"


def _of_pad(module: Any, name: str, older: str) -> Any:
    """Return what a padding layer keeps under a name that began with an underscore before Paddle 3.3."""
    return getattr(module, name) if hasattr(module, name) else getattr(module, older)


def _pad(axes: int) -> dict[str, Setting]:
    return {
        "padding": Setting(lambda m: _of_pad(m, "padding", "_pad"), conversions.flat_pairs(axes), "padding"),
        "mode": Setting("_mode", spelled="mode"),
        "value": Setting(lambda m: _of_pad(m, "value", "_value") if m._mode == "constant" else 0.0, float, "value"),
    }


# Units ------------------------------------------------------------------------------------------------------


def _in_cell(module: Any, layer: int, suffix: str, role: str) -> Part:
    """Return where a role of a recurrent module lies: at the module itself under its own name, else in the cell.

    Paddle hands those names out by counting: where a bias is left out, they stand for other parameters.
    """
    cell = ("cell_bw" if suffix else "cell_fw") if module.num_directions == 2 else "cell"
    if role == "weight_hr":
        return Part(f"{layer}.{cell}.weight_ho", transpose=(1, 0))
    native, name = getattr(getattr(module[layer], cell), role), f"{role}_l{layer}{suffix}"
    exposed = native is not None and module._parameters.get(name) is native
    return Part(name if exposed else f"{layer}.{cell}.{role}")


_TRANSPOSED = Part("weight", transpose=(1, 0))


def _fused_linear(module: Any) -> Mapping[str, Unit]:
    """Return the unit of a linear layer that holds its weight as the catalogue has it, or the other way round."""
    weight = Part("weight") if module.transpose_weight else _TRANSPOSED
    return {"": Unit("linear", {"weight": weight, "bias": Part("bias")})}


# The table --------------------------------------------------------------------------------------------------

_LINEAR = spelling.simple("linear", weight=_TRANSPOSED, bias="bias")
_EMBEDDING = {"padding_idx": Setting(_padding_idx, spelled="padding_idx")}
_ROLES = {"weight": "weight", "bias": "bias", "running_mean": "_mean", "running_var": "_variance"}
_BATCH_NORM = spelling.simple("batch_norm", settings=_BATCH, **_ROLES)
_INSTANCE = {**_EPS, "track": spelling.constant(False)}
_INSTANCE_NORM = spelling.simple("instance_norm", settings=_INSTANCE, weight="scale", bias="bias")


def _ranked(n: int) -> dict[str, Mapping[str, Rule]]:
    """Return the rules of classes that there are for one, two and three spatial axes."""
    transposed = _conv(n, transposed=True)
    adaptive = spelling.shaped(n, output_size="output_size" if n == 1 else "_output_size")
    return {
        "common": {f"Pad{n}D": Rule("pad", settings=_pad(n))},
        "norm": {
            f"BatchNorm{n}D": _BATCH_NORM,
            f"InstanceNorm{n}D": _INSTANCE_NORM,
        },
        "conv": {
            f"Conv{n}D": spelling.simple(f"conv{n}d", *spelling.AFFINE, settings=_conv(n)),
            f"Conv{n}DTranspose": spelling.simple(f"conv_transpose{n}d", *spelling.AFFINE, settings=transposed),
        },
        "pooling": {
            f"MaxPool{n}D": Rule(f"max_pool{n}d", settings={**_pool(n), "dilation": spelling.constant((1,) * n)}),
            f"AvgPool{n}D": Rule(f"avg_pool{n}d", settings=_avg_pool(n)),
            f"AdaptiveAvgPool{n}D": Rule(f"adaptive_avg_pool{n}d", settings=adaptive),
            f"AdaptiveMaxPool{n}D": Rule(f"adaptive_max_pool{n}d", settings=adaptive),
        },
    }


_PADDLE: Mapping[str, Mapping[str, Rule]] = {
    "common": {
        **classes.named("Identity Dropout2D Dropout3D AlphaDropout FeatureAlphaDropout"),
        **classes.named("Upsample UpsamplingNearest2D UpsamplingBilinear2D"),
        "Linear": _LINEAR,
        "Bilinear": spelling.simple("bilinear", "weight", bias=Part("bias", squeeze=0)),
        "Embedding": spelling.simple("embedding", "weight", settings=_EMBEDDING),
        "Dropout": Rule("dropout", settings=_DROPOUT),
        "Flatten": Rule("flatten", settings=spelling.own(start="start_axis", end="stop_axis")),
        "CosineSimilarity": Rule("cosine_similarity", settings=spelling.own(axis="_axis", eps="_eps")),
        "Unfold": Rule("unfold", settings=spelling.shaped(2, **_UNFOLD)),
    },
    "norm": {
        "BatchNorm": spelling.simple("batch_norm", settings=_OLD_BATCH, **_ROLES),
        "SyncBatchNorm": _BATCH_NORM,
        "LayerNorm": spelling.simple(
            "layer_norm", *spelling.AFFINE, settings={**_EPS, **spelling.normalized_shape("_normalized_shape")}
        ),
        "GroupNorm": spelling.simple(
            "group_norm", *spelling.AFFINE, settings={**_EPS, **spelling.own(groups="_num_groups")}
        ),
        **classes.named("LocalResponseNorm"),
    },
    "rnn": spelling.recurrent("SimpleRNN", _in_cell, _RECURRENT, spelling.own("activation")),
    "transformer": {
        "MultiHeadAttention": Rule("attention", settings=_ATTENTION),
        **spelling.transformer(_LAYER),
    },
    "activation": {
        **spelling.activations("_axis", ("_min", "_max"), mark="_"),
        **classes.named("Silu Softmax2D"),
        "Swish": Rule("silu"),
        "PReLU": spelling.simple("prelu", weight="_weight"),
        "GELU": Rule("gelu", settings={"approximate": Setting("_approximate", _approximate, "approximate")}),
    },
    "container": classes.named("Sequential"),
    "vision": {
        "PixelShuffle": Rule("pixel_shuffle", settings=spelling.own(factor="_upscale_factor")),
        "ChannelShuffle": Rule("channel_shuffle", settings=spelling.own(groups="_groups")),
    },
}

_HEADS = {"llama": "Llama", "qwen": "QWen", "mixtral": "Mixtral"}
_HEAD = spelling.simple("linear", weight=_TRANSPOSED)
_OTHERS: Mapping[str, Mapping[str, Rule]] = {
    "paddle.incubate.nn.layer.fused_linear": {"FusedLinear": Rule("linear", _fused_linear)},
    "paddle.distributed.fleet.layers.mpu.mp_layers": {
        "ColumnParallelLinear": _LINEAR,
        "RowParallelLinear": _LINEAR,
        "VocabParallelEmbedding": spelling.simple("embedding", "weight"),
    },
    "paddlenlp.transformers.activations": spelling.transformers_activations(),
    **{f"paddlenlp.transformers.{name}.modeling": {f"{head}LMHead": _HEAD} for name, head in _HEADS.items()},
}


TABLE: Mapping[str, Rule] = {
    **{f"paddle.nn.layer.{name}": rule for n in (1, 2, 3) for name, rule in spelling.table(_ranked(n)).items()},
    **{f"paddle.nn.layer.{name}": rule for name, rule in spelling.table(_PADDLE).items()},
    **spelling.table(_OTHERS),
}
"""The rule of each class, by qualified name."""

STATISTICS: Mapping[str, frozenset[str]] = {
    "paddle.nn.layer.norm._BatchNormBase": frozenset({"_mean", "_variance"}),
    "paddle.nn.layer.norm.BatchNorm": frozenset({"_mean", "_variance"}),
    "paddle.nn.layer.norm.SpectralNorm": frozenset({"weight_u", "weight_v"}),
}
"""What Paddle keeps among a class's parameters although it is a buffer: a forward pass changes it."""


_RMS_EPSILON = spelling.simple("rms_norm", "weight", settings=spelling.own(eps="epsilon"))
HABITS = (
    Habit(r"RMSNorm$", ("weight", "variance_epsilon"), spelling.RMS_NORM),
    Habit(r"RMSNorm$", ("weight", "eps"), spelling.simple("rms_norm", "weight", settings=spelling.own("eps"))),
    Habit(r"RMSNorm$", ("weight", "epsilon"), _RMS_EPSILON),
    Habit(r"^M?T5LayerNorm$", ("weight", "variance_epsilon"), spelling.RMS_NORM),
    Habit(r"^(OPT|Bloom|Chat)\w*Head$", ("decoder_weight",), spelling.simple("linear", weight="decoder_weight")),
    spelling.DROP_PATH,
)
"""Rules for classes that have no one qualified name."""
