"""Say which torch class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name, so that nothing has to be imported. The catalogue's conventions are torch's:
only a few third-party classes need a transform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from padiff.adapter import Habit, Part, Rule, Setting, Unit, classes, spelling


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


_AFFINE = spelling.AFFINE
_EPS = spelling.own("eps")
_LAYERS = classes.named("Linear LayerNorm")
_RMS_NORM = spelling.simple("rms_norm", "weight", settings=_EPS)
_FROZEN = {**_EPS, "training": spelling.constant(False), "track": spelling.constant(True)}
_DEPTH = {**spelling.dropout("sample"), "axis": Setting("mode", {"row": "sample", "batch": "batch"}.get)}

_TORCH = {
    "linear": "Identity Linear Bilinear",
    "sparse": "Embedding",
    "conv": "Conv?d ConvTranspose?d",
    "batchnorm": "BatchNorm?d SyncBatchNorm",
    "instancenorm": "InstanceNorm?d",
    "normalization": "LayerNorm GroupNorm LocalResponseNorm CrossMapLRN2d",
    "pooling": "MaxPool?d AvgPool?d AdaptiveAvgPool?d AdaptiveMaxPool?d",
    "padding": "ZeroPad?d ConstantPad?d ReflectionPad?d ReplicationPad?d CircularPad?d",
    "rnn": "LSTM LSTMCell GRU GRUCell RNN RNNCell",
    "transformer": "TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder TransformerDecoder Transformer",
    "dropout": "Dropout Dropout?d AlphaDropout FeatureAlphaDropout",
    "activation": "ReLU ReLU6 LeakyReLU PReLU ELU CELU SELU GELU GLU SiLU Mish Softplus Softsign Tanh Tanhshrink"
    " Hardtanh Sigmoid LogSigmoid Hardswish Hardsigmoid Softmax Softmax2d LogSoftmax MultiheadAttention",
    "upsampling": "Upsample",
    "flatten": "Flatten",
    "pixelshuffle": "PixelShuffle",
    "channelshuffle": "ChannelShuffle",
    "fold": "Unfold",
    "container": "Sequential",
    "distance": "CosineSimilarity",
}
"""What torch itself has, by file."""

_OTHERS = {
    "torch.nn.modules.normalization": {
        "RMSNorm": spelling.simple("rms_norm", "weight", settings={"eps": Setting(_rms_eps, spelled="eps")})
    },
    "torchvision.ops.misc": {"FrozenBatchNorm2d": spelling.simple("batch_norm", *spelling.NORM, settings=_FROZEN)},
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
    "apex.normalization.fused_layer_norm": {"FusedLayerNorm": _LAYERS["LayerNorm"], "FusedRMSNorm": _RMS_NORM},
    "megatron.core.tensor_parallel.layers": {
        **dict.fromkeys(("ColumnParallelLinear", "RowParallelLinear"), _LAYERS["Linear"]),
        "VocabParallelEmbedding": spelling.simple("embedding", "weight"),
    },
    "megatron.core.transformer.attention": {"SelfAttention": Rule("attention", _megatron_attention)},
}

TABLE: Mapping[str, Rule] = {
    **spelling.table({f"torch.nn.modules.{file}": classes.named(names) for file, names in _TORCH.items()}),
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
