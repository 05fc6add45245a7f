"""Hold the catalogue of kinds: what a module is in any framework, and how its parameters lie.

The hub of "hub and spoke". The catalogue names, for each kind, its roles (with their canonical layout) and the
settings (hyper-parameters) that change the result. An adapter describes each of its classes once, as a `Rule`
towards this hub; so N frameworks need N tables, never a function for a pair.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

LAYOUT = "data_format"
"""The setting that says where images have their channels."""
ORDER_SETTINGS = frozenset({LAYOUT, "batch_first"})
"""The settings that say in which order a module takes and gives axes."""
PRODUCTS = frozenset({"linear", "conv1d", "conv2d", "conv3d"})
"""The kinds that compute the same at single points, or on patches side by side."""
CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})
"""The kinds that compute the same where a kernel has one element along the axes that another one has not."""
SLIDING = CONVOLUTIONS | {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
"""The kinds whose weight is a kernel, rows before columns behind its first two axes."""
NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"})
"""The kinds that normalise a value, then scale and shift it."""
FUSED = "fused"
"""The setting that names an activation which the same module applies; a class that does not spell it applies none."""


@attrs.frozen
class Kind:
    """A kind of layer: its roles with their canonical axes, and its settings with their canonical meaning."""

    name: str
    roles: Mapping[str, str] = attrs.field(factory=dict)
    settings: Mapping[str, str] = attrs.field(factory=dict)
    stochastic: bool = False
    maps: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Linear maps that it computes with: what each takes -> the map's roles, and those of the kind that play them."""
    outputs: int | None = None
    """How many outputs it has in every framework; further ones (attention weights) are extras."""


def _conv(name: str, weight: str) -> Kind:
    return Kind(
        name,
        {"weight": weight, "bias": "(out,)"},
        {
            "stride": "one int for each spatial axis",
            "padding": "((before, after), ...) for each spatial axis, or 'same' / 'valid'",
            "padding_mode": "zeros, reflect, replicate or circular",
            "dilation": "one int for each spatial axis",
            "groups": "int",
            "output_padding": "one int for each spatial axis (transposed only)",
            LAYOUT: "channels first or last: NCHW, NHWC, whatever the number of axes",
        },
    )


_CELL = {"weight_ih": "(gates*hidden, in)", "weight_hh": "(gates*hidden, hidden)", "bias_ih": "(gates*hidden,)"}
_CELL = {**_CELL, "bias_hh": "(gates*hidden,)"}
INPUT_MAP, STATE_MAP = "input", "state"
"""The linear maps of a recurrent cell: of its input, and of what it gave in the step before."""
_MAPS = {
    INPUT_MAP: {"weight": "weight_ih", "bias": "bias_ih"},
    STATE_MAP: {"weight": "weight_hh", "bias": "bias_hh"},
}
_FUSED = "name of an activation that the same module applies, or None"
_NORM = {"weight": "(features,)", "bias": "(features,)"}
_RUNNING = {"running_mean": "(features,)", "running_var": "(features,)"}
_EPS = {"eps": "added to the variance"}
_BATCH = {
    **_EPS,
    "momentum": "weight of the new batch in the running statistics (torch's convention); None for a plain average",
    "training": "whether batch statistics are used",
    "track": "whether running statistics are kept",
    FUSED: _FUSED,
}
_POOL = {
    "kernel_size": "one int for each spatial axis",
    "stride": "one int for each spatial axis",
    "padding": "((before, after), ...) for each spatial axis",
    "ceil_mode": "bool",
}
_RECURRENT = {
    "hidden_size": "int",
    "num_layers": "int",
    "bidirectional": "bool",
    "batch_first": "whether the input is (batch, time, features)",
    "dropout": "probability between layers",
    "training": "whether dropout is active",
}

# Canonical gate order: lstm i, f, g, o; gru r, z, n (the candidate's bias_hh inside the reset product).
_KINDS = (
    Kind("linear", {"weight": "(out, in)", "bias": "(out,)"}, {FUSED: _FUSED}),
    Kind("bilinear", {"weight": "(out, in1, in2)", "bias": "(out,)"}),
    *(_conv(f"conv{n}d", "(out, in/groups, *kernel)") for n in (1, 2, 3)),
    *(_conv(f"conv_transpose{n}d", "(in, out/groups, *kernel)") for n in (1, 2, 3)),
    Kind("embedding", {"weight": "(entries, features)"}, {"padding_idx": "int or None"}),
    Kind("batch_norm", {**_NORM, **_RUNNING}, _BATCH),
    Kind("layer_norm", _NORM, {**_EPS, "normalized_shape": "the trailing axes that are normalised"}),
    Kind("group_norm", _NORM, {**_EPS, "groups": "int"}),
    Kind("instance_norm", {**_NORM, **_RUNNING}, {**_EPS, **{name: _BATCH[name] for name in ("momentum", "track")}}),
    Kind("rms_norm", {"weight": "(features,)"}, _EPS),
    Kind("local_response_norm", {}, {"size": "int", "alpha": "float", "beta": "float", "k": "float"}),
    Kind("prelu", {"weight": "(features,) or (1,)"}),
    *(Kind(f"{name}_cell", _CELL, maps=_MAPS) for name in ("lstm", "gru")),
    Kind("rnn_cell", _CELL, {"activation": "tanh or relu"}, maps=_MAPS),
    *(Kind(name, {}, _RECURRENT) for name in ("lstm", "gru")),
    Kind("rnn", {}, {**_RECURRENT, "activation": "tanh or relu"}),
    Kind(
        "attention",
        {},
        {"num_heads": "int", "dropout": "probability", "training": "whether dropout is active", "batch_first": "bool"},
        outputs=1,
    ),
    Kind("transformer_encoder_layer", {}, {"norm_first": "bool", "activation": "name of the function"}),
    Kind("transformer_decoder_layer", {}, {"norm_first": "bool", "activation": "name of the function"}),
    Kind("transformer_encoder"),
    Kind("transformer_decoder"),
    Kind("transformer"),
    Kind(
        "dropout",
        {},
        {
            "p": "probability of zeroing",
            "mode": "upscale_in_train (scaled by 1/(1-p) in training) or downscale_in_infer (by 1-p in evaluation)",
            "training": "whether it is active",
            "axis": "what is dropped together: element, or channel",
        },
        stochastic=True,
    ),
    Kind("identity"),
    Kind("flatten", {}, {"start": "first axis", "end": "last axis"}),
    *(Kind(f"max_pool{n}d", {}, {**_POOL, "dilation": "one int for each spatial axis"}) for n in (1, 2, 3)),
    *(Kind(f"avg_pool{n}d", {}, {**_POOL, "count_include_pad": "bool", "divisor": "int or None"}) for n in (1, 2, 3)),
    *(Kind(f"adaptive_avg_pool{n}d", {}, {"output_size": "one int for each spatial axis"}) for n in (1, 2, 3)),
    *(Kind(f"adaptive_max_pool{n}d", {}, {"output_size": "one int for each spatial axis"}) for n in (1, 2, 3)),
    *(Kind(name) for name in ("relu", "relu6", "sigmoid", "tanh", "silu", "mish", "softsign", "tanhshrink")),
    *(Kind(name) for name in ("hardswish", "hardsigmoid", "log_sigmoid")),
    Kind("gelu", {}, {"approximate": "none (erf), tanh, or sigmoid (x * sigmoid(1.702 x))"}),
    Kind("leaky_relu", {}, {"slope": "float"}),
    Kind("elu", {}, {"alpha": "float"}),
    Kind("celu", {}, {"alpha": "float"}),
    Kind("selu"),
    Kind("softplus", {}, {"beta": "float", "threshold": "float"}),
    Kind("hardtanh", {}, {"min": "float", "max": "float"}),
    Kind("softmax", {}, {"axis": "int"}),
    Kind("log_softmax", {}, {"axis": "int"}),
    Kind("glu", {}, {"axis": "int"}),
    Kind("pad", {}, {"padding": "((before, after), ...) from the first padded axis", "mode": "name", "value": "float"}),
    Kind("upsample", {}, {"size": "ints or None", "scale": "floats or None", "mode": "name", "align_corners": "bool"}),
    Kind("pixel_shuffle", {}, {"factor": "int"}),
    Kind("channel_shuffle", {}, {"groups": "int"}),
    Kind("unfold", {}, {"kernel_size": "ints", "stride": "ints", "padding": "ints", "dilation": "ints"}),
    Kind("sequential"),
    Kind("cosine_similarity", {}, {"axis": "int", "eps": "float"}),
)

CATALOGUE: Mapping[str, Kind] = {kind.name: kind for kind in _KINDS}
