"""Hold the rules of torch's own layers by class name: whoever calls and spells a layer as torch does takes its rule."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import filter as matching

from padiff.kinds import spelling
from padiff.kinds._rules import Rule
from padiff.kinds.spelling import AFFINE, NORM, own, shaped, simple

_LRN = Rule("local_response_norm", settings=own("size", "alpha", "beta", "k"))
_PADS = {"Zero": "constant", "Constant": "constant", "Reflection": "reflect"}
_PADS = {**_PADS, "Replication": "replicate", "Circular": "circular"}


def _ranked(n: int) -> Mapping[str, Rule]:
    """Return the rules of classes that there are for one, two and three spatial axes."""
    transposed = spelling.conv(n, transposed=True)
    return {
        f"Conv{n}d": simple(f"conv{n}d", *AFFINE, settings=spelling.conv(n)),
        f"ConvTranspose{n}d": simple(f"conv_transpose{n}d", *AFFINE, settings=transposed),
        f"BatchNorm{n}d": spelling.BATCH_NORM,
        f"InstanceNorm{n}d": simple("instance_norm", *NORM, settings=spelling.RUNNING),
        f"Dropout{n}d": Rule("dropout", settings=spelling.dropout("channel")),
        f"MaxPool{n}d": Rule(f"max_pool{n}d", settings={**spelling.pool(n), **shaped(n, "dilation")}),
        f"AvgPool{n}d": Rule(f"avg_pool{n}d", settings=spelling.avg_pool(n)),
        f"AdaptiveAvgPool{n}d": Rule(f"adaptive_avg_pool{n}d", settings=shaped(n, "output_size")),
        f"AdaptiveMaxPool{n}d": Rule(f"adaptive_max_pool{n}d", settings=shaped(n, "output_size")),
        **{f"{name}Pad{n}d": Rule("pad", settings=spelling.pad(n, mode)) for name, mode in _PADS.items()},
    }


_RULES: Mapping[str, Rule] = {
    **_ranked(1),
    **_ranked(2),
    **_ranked(3),
    **spelling.recurrent(),
    **spelling.transformer(),
    **spelling.activations("dim", ("min_val", "max_val")),
    **spelling.plain("SiLU Identity Sequential"),
    "Linear": simple("linear", *AFFINE),
    "Bilinear": simple("bilinear", *AFFINE),
    "Embedding": simple("embedding", "weight", settings=own("padding_idx")),
    "SyncBatchNorm": spelling.BATCH_NORM,
    "LayerNorm": simple("layer_norm", *AFFINE, settings={**own("eps"), **spelling.normalized_shape()}),
    "GroupNorm": simple("group_norm", *AFFINE, settings=own("eps", groups="num_groups")),
    **dict.fromkeys(("LocalResponseNorm", "CrossMapLRN2d"), _LRN),
    "Dropout": Rule("dropout", settings=spelling.dropout("element")),
    "AlphaDropout": Rule("dropout", settings=spelling.dropout("element", mode="alpha")),
    "FeatureAlphaDropout": Rule("dropout", settings=spelling.dropout("channel", mode="alpha")),
    "Flatten": Rule("flatten", settings=own(start="start_dim", end="end_dim")),
    "MultiheadAttention": spelling.ATTENTION,
    "PReLU": simple("prelu", "weight"),
    "GELU": Rule("gelu", settings=own("approximate")),
    "Softmax2d": Rule("softmax", settings={"axis": spelling.constant(-3)}),
    "Upsample": Rule("upsample", settings=spelling.upsample()),
    "UpsamplingNearest2d": Rule("upsample", settings=spelling.upsample("nearest")),
    "UpsamplingBilinear2d": Rule("upsample", settings=spelling.upsample("bilinear")),
    "PixelShuffle": Rule("pixel_shuffle", settings=own(factor="upscale_factor")),
    "ChannelShuffle": Rule("channel_shuffle", settings=own("groups")),
    "Unfold": Rule("unfold", settings=shaped(2, "kernel_size", "stride", "padding", "dilation")),
    "CosineSimilarity": Rule("cosine_similarity", settings=own("eps", axis="dim")),
}
_BY_NAME = {name.lower(): rule for name, rule in _RULES.items()}


def named(names: str) -> dict[str, Rule]:
    """Return the rules of classes that are called as torch's, in whatever case, and spell everything as these do.

    ``Conv?d`` stands for all three.
    """
    found = (one for name in names.split() for one in (matching(_RULES, name) if "?" in name else (name,)))
    return {name: _BY_NAME[name.lower()] for name in found}
