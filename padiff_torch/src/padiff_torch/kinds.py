"""Say which torch class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name, so that nothing has to be imported. The catalogue's conventions are torch's:
only a few third-party classes need a transform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from padiff.adapter import Habit, Part, Rule, Setting, Unit, spelling


def _rms_eps(module: Any) -> float:
    """Return the epsilon of torch's RMSNorm, where None means the smallest step of the input's dtype."""
    import torch

    dtype = torch.float32 if module.weight is None else module.weight.dtype
    return torch.finfo(dtype).eps if module.eps is None else float(module.eps)


def _megatron_attention(module: Any) -> Mapping[str, Unit]:
    """Return q, k and v of Megatron's attention, which lie side by side in one layer, group of heads by group."""
    groups = module.num_query_groups_per_partition
    size = module.hidden_size_per_attention_head
    sizes = [module.num_attention_heads_per_partition // groups * size, size, size]
    if module.linear_qkv.weight.shape[0] != groups * sum(sizes):  # with a gate for the output, say
        return {}
    rows = dict(zip("qkv", spelling.interleaved(sizes, groups), strict=True))
    return {
        name: Unit("linear", {role: Part(f"linear_qkv.{role}", rows=rows[name]) for role in _AFFINE}) for name in rows
    }


_AFFINE, _NORM = spelling.AFFINE, spelling.NORM
_LINEAR = spelling.simple("linear", *_AFFINE)
_EPS = spelling.own("eps")
_LAYER_NORM = spelling.simple("layer_norm", *_AFFINE, settings={**_EPS, **spelling.normalized_shape()})
_INSTANCE_NORM = spelling.simple("instance_norm", *_NORM, settings=spelling.own("eps", "momentum"))
_RMS_NORM = spelling.simple("rms_norm", "weight", settings=_EPS)
_FROZEN = {**_EPS, "training": spelling.constant(False), "track": spelling.constant(True)}
_LRN = Rule("local_response_norm", settings=spelling.own("size", "alpha", "beta", "k"))
_ALPHA = {axis: Rule("dropout", settings=spelling.dropout(axis, mode="alpha")) for axis in ("element", "channel")}
_DEPTH = {**spelling.dropout("sample"), "axis": Setting("mode", {"row": "sample", "batch": "batch"}.get)}
_PADS = {"Zero": "constant", "Constant": "constant", "Reflection": "reflect"}
_PADS = {**_PADS, "Replication": "replicate", "Circular": "circular"}


def _ranked(n: int) -> dict[str, Mapping[str, Rule]]:
    """Return the rules of classes that there are for one, two and three spatial axes."""
    transposed = spelling.conv(n, transposed=True)
    return {
        "conv": {
            f"Conv{n}d": spelling.simple(f"conv{n}d", *_AFFINE, settings=spelling.conv(n)),
            f"ConvTranspose{n}d": spelling.simple(f"conv_transpose{n}d", *_AFFINE, settings=transposed),
        },
        "batchnorm": {f"BatchNorm{n}d": spelling.BATCH_NORM},
        "instancenorm": {f"InstanceNorm{n}d": _INSTANCE_NORM},
        "dropout": {f"Dropout{n}d": Rule("dropout", settings=spelling.dropout("channel"))},
        "pooling": {
            f"MaxPool{n}d": Rule(f"max_pool{n}d", settings={**spelling.pool(n), **spelling.shaped(n, "dilation")}),
            f"AvgPool{n}d": Rule(f"avg_pool{n}d", settings=spelling.avg_pool(n)),
            f"AdaptiveAvgPool{n}d": Rule(f"adaptive_avg_pool{n}d", settings=spelling.shaped(n, "output_size")),
            f"AdaptiveMaxPool{n}d": Rule(f"adaptive_max_pool{n}d", settings=spelling.shaped(n, "output_size")),
        },
        "padding": {f"{name}Pad{n}d": Rule("pad", settings=spelling.pad(n, mode)) for name, mode in _PADS.items()},
    }


_TORCH = {
    "linear": {
        "Identity": Rule("identity"),
        "Linear": _LINEAR,
        "Bilinear": spelling.simple("bilinear", *_AFFINE),
    },
    "sparse": {"Embedding": spelling.simple("embedding", "weight", settings=spelling.own("padding_idx"))},
    "batchnorm": {"SyncBatchNorm": spelling.BATCH_NORM},
    "normalization": {
        "LayerNorm": _LAYER_NORM,
        "GroupNorm": spelling.simple("group_norm", *_AFFINE, settings=spelling.own("eps", groups="num_groups")),
        "RMSNorm": spelling.simple("rms_norm", "weight", settings={"eps": Setting(_rms_eps, spelled="eps")}),
        "LocalResponseNorm": _LRN,
        "CrossMapLRN2d": _LRN,
    },
    "rnn": spelling.recurrent(),
    "transformer": spelling.transformer(),
    "dropout": {
        "Dropout": Rule("dropout", settings=spelling.dropout("element")),
        "AlphaDropout": _ALPHA["element"],
        "FeatureAlphaDropout": _ALPHA["channel"],
    },
    "flatten": {"Flatten": Rule("flatten", settings=spelling.own(start="start_dim", end="end_dim"))},
    "activation": {
        **spelling.activations("dim", ("min_val", "max_val")),
        **spelling.plain("SiLU"),
        "MultiheadAttention": spelling.ATTENTION,
        "PReLU": spelling.simple("prelu", "weight"),
        "GELU": Rule("gelu", settings=spelling.own("approximate")),
        "Softmax2d": spelling.CHANNEL_SOFTMAX,
    },
    "upsampling": {"Upsample": Rule("upsample", settings=spelling.upsample())},
    "pixelshuffle": {"PixelShuffle": Rule("pixel_shuffle", settings=spelling.own(factor="upscale_factor"))},
    "channelshuffle": {"ChannelShuffle": Rule("channel_shuffle", settings=spelling.own("groups"))},
    "fold": {"Unfold": Rule("unfold", settings=spelling.shaped(2, "kernel_size", "stride", "padding", "dilation"))},
    "container": {"Sequential": Rule("sequential")},
    "distance": {"CosineSimilarity": Rule("cosine_similarity", settings={**_EPS, **spelling.own(axis="dim")})},
}

_OTHERS = {
    "torchvision.ops.misc": {"FrozenBatchNorm2d": spelling.simple("batch_norm", *_NORM, settings=_FROZEN)},
    "torchvision.ops.stochastic_depth": {"StochasticDepth": Rule("dropout", settings=_DEPTH)},
    "transformers.pytorch_utils": {
        "Conv1D": spelling.simple("linear", weight=Part("weight", transpose=(1, 0)), bias="bias")
    },
    "transformers.activations": {
        **spelling.transformers_activations(),
        **dict.fromkeys(("AccurateGELUActivation", "GELUTanh", "PytorchGELUTanh"), spelling.GELU_TANH),
    },
    **{
        f"transformers.models.{name.lower()}.modeling_{name.lower()}": {f"{name}LayerNorm": spelling.RMS_NORM}
        for name in ("T5", "LongT5", "MT5", "UMT5")
    },
    "timm.layers.norm": {"RmsNorm": _RMS_NORM},
    "timm.layers.activations": {"Swish": Rule("silu"), "GELUTanh": spelling.GELU_TANH},
    "apex.normalization.fused_layer_norm": {"FusedLayerNorm": _LAYER_NORM, "FusedRMSNorm": _RMS_NORM},
    "megatron.core.tensor_parallel.layers": {
        "ColumnParallelLinear": _LINEAR,
        "RowParallelLinear": _LINEAR,
        "VocabParallelEmbedding": spelling.simple("embedding", "weight"),
    },
    "megatron.core.transformer.attention": {"SelfAttention": Rule("attention", _megatron_attention)},
}

TABLE: Mapping[str, Rule] = {
    **{f"torch.nn.modules.{name}": rule for n in (1, 2, 3) for name, rule in spelling.table(_ranked(n)).items()},
    **{f"torch.nn.modules.{name}": rule for name, rule in spelling.table(_TORCH).items()},
    **spelling.table(_OTHERS),
}
"""The rule of each class, by qualified name."""


# Not every RMSNorm multiplies by its weight: Gemma's by 1 + weight, and it calls its epsilon otherwise than
# the copies of Llama's do.
HABITS = (
    Habit(r"RMSNorm$", ("weight", "variance_epsilon"), spelling.RMS_NORM),
    Habit(r"^RMSNorm$", ("weight", "eps"), _RMS_NORM),
    spelling.DROP_PATH,
)
"""Rules for classes that have no one qualified name."""
