"""Say which NNX class is which kind, where its parameters lie, and how it spells its settings.

One entry per class, by qualified name. A Linear's kernel is ``(in, out)``, attention keeps its heads apart, a
convolution's kernel has its channels last, and running averages are weighed by 1 - torch's momentum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from padiff.adapter import Part, Rule, Setting, Unit, conversions, spelling

# Settings ---------------------------------------------------------------------------------------------------


_EPS = spelling.own(eps="epsilon")
_TRAINING = {"training": Setting("deterministic", lambda value: value is False, "deterministic")}
_BATCH = {
    **_EPS,
    "momentum": Setting("momentum", conversions.complement, "momentum"),
    "training": Setting("use_running_average", lambda value: value is False, "use_running_average"),
    "track": spelling.constant(True),
    "fused": spelling.constant(None),
}
_DROPOUT = {
    **spelling.own(p="rate"),
    **_TRAINING,
    "mode": spelling.constant("upscale_in_train"),
    "axis": Setting(
        "broadcast_dims", lambda dims: f"broadcast over {tuple(dims)}" if dims else "element", "broadcast_dims"
    ),
}

# Units ------------------------------------------------------------------------------------------------------

_SWAP = (1, 0)
_AFFINE = {"weight": Part("scale"), "bias": Part("bias")}
_STATISTICS = {"running_mean": Part("mean"), "running_var": Part("var")}


def _simple(kind: str, roles: Mapping[str, Part], **settings: Setting) -> Rule:
    return spelling.simple(kind, settings=settings, **roles)


def _general(prefix: str, inward: int, outward: int) -> Unit:
    """Return a linear unit whose input and output features are spread over so many axes."""
    weight = Part(f"{prefix}kernel", merge=(inward, outward), transpose=_SWAP)
    return Unit("linear", {"weight": weight, "bias": Part(f"{prefix}bias", merge=(outward,))})


def _linear_general(module: Any) -> Mapping[str, Unit]:
    """Return one linear unit, or none where every entry of a batch has a kernel of its own."""
    return {} if module.batch_axis else {"": _general("", len(module.in_features), len(module.out_features))}


_ATTENTION = {
    "q": _general("query.", 1, 2),
    "k": _general("key.", 1, 2),
    "v": _general("value.", 1, 2),
    "out": _general("out.", 2, 1),
}

# What comes in and what was is summed, so only one of a cell's layers has a bias: which one, differs.
_CELLS = {
    "OptimizedLSTMCell": ("lstm", {"bias_hh": "dense_h.bias"}),
    "GRUCell": ("gru", {"bias_ih": "dense_i.bias"}),
    "SimpleCell": ("rnn", {"bias_ih": "dense_i.bias"}),
}


_LAYERS = {**{name: kind for name, (kind, _) in _CELLS.items()}, "LSTMCell": "lstm"}
"""Cell -> the kind of a layer of such cells."""


def _cell(name: str) -> Rule:
    kind, biases = _CELLS[name]
    weights = {"weight_ih": "dense_i.kernel", "weight_hh": "dense_h.kernel"}
    parts = {role: Part(path, transpose=_SWAP) for role, path in weights.items()}
    return _simple(f"{kind}_cell", parts | {role: Part(path) for role, path in biases.items()})


# Rules that depend on the module ----------------------------------------------------------------------------


def _each(value: Any, axes: int) -> tuple[int, ...]:
    return conversions.spread(1 if value is None else value, axes)


def _shaped(axes: int, **attributes: str) -> dict[str, Setting]:
    return {name: Setting(native, lambda value: _each(value, axes), native) for name, native in attributes.items()}


def _reach(module: Any) -> list[int]:
    """Return how far the kernel reaches beyond one position, along each axis."""
    dilations = _each(module.kernel_dilation, len(module.kernel_size))
    return [(size - 1) * by for size, by in zip(module.kernel_size, dilations, strict=True)]


def _pairs(value: Any, axes: int) -> Any:
    """Return an explicit padding as (before, after) pairs; a name stays."""
    if isinstance(value, str):
        return value.upper()
    if isinstance(value, int):
        return ((value, value),) * axes
    pairs = tuple((one, one) if isinstance(one, int) else tuple(one) for one in value)
    return pairs * axes if len(pairs) == 1 else pairs


def _padding(module: Any) -> Any:
    """Return a convolution's padding as pairs; ``same`` where it depends on the size of the input."""
    axes = len(module.kernel_size)
    padding = _pairs(module.padding, axes)
    if padding == "VALID":
        return ((0, 0),) * axes
    if padding == "CAUSAL":
        return tuple((one, 0) for one in _reach(module))
    if padding in ("CIRCULAR", "REFLECT") or (padding == "SAME" and set(_each(module.strides, axes)) == {1}):
        return tuple((one // 2, one - one // 2) for one in _reach(module))
    return padding.lower() if isinstance(padding, str) else padding


def _padding_mode(module: Any) -> str:
    return {"CIRCULAR": "circular", "REFLECT": "reflect"}.get(_pairs(module.padding, 1), "zeros")


def _transposed_padding(module: Any) -> Any:
    """Return what is cut off a transposed convolution's full output, as pairs: torch's padding.

    Flax pads what the kernel runs over (jax.lax.conv_transpose); the two add up to the kernel's reach.
    """
    axes = len(module.kernel_size)
    padding = _pairs(module.padding, axes)
    strides = _each(module.strides, axes)
    if padding == "SAME":
        totals = [reach + 1 + stride - 2 for reach, stride in zip(_reach(module), strides, strict=True)]
        firsts = [
            stride - 1 if stride > reach else -(-total // 2)
            for reach, stride, total in zip(_reach(module), strides, totals, strict=True)
        ]
        padding = tuple((first, total - first) for first, total in zip(firsts, totals, strict=True))
    if padding == "VALID":
        padding = tuple(
            (reach, reach + max(stride - reach - 1, 0)) for reach, stride in zip(_reach(module), strides, strict=True)
        )
    if isinstance(padding, str):
        return padding.lower()
    return tuple((reach - a, reach - b) for reach, (a, b) in zip(_reach(module), padding, strict=True))


def _conv(module: Any) -> Rule:
    axes = len(module.kernel_size)
    weight = Part("kernel", transpose=(axes + 1, axes, *range(axes)))
    return _simple(
        f"conv{axes}d",
        {"weight": weight, "bias": Part("bias")},
        **_shaped(axes, stride="strides", dilation="kernel_dilation"),
        **spelling.own(groups="feature_group_count"),
        padding=Setting(_padding, spelled="padding"),
        padding_mode=Setting(_padding_mode, spelled="padding"),
        data_format=spelling.constant("NHWC"),
    )


def _conv_transpose(module: Any) -> Rule:
    """Return the rule of a transposed convolution, whose kernel is turned round unless it is told to turn it itself."""
    axes = len(module.kernel_size)
    spatial = tuple(range(axes))
    order = (axes + 1, axes) if module.transpose_kernel else (axes, axes + 1)
    weight = Part("kernel", transpose=(*order, *spatial), flip=() if module.transpose_kernel else spatial)
    return _simple(
        f"conv_transpose{axes}d",
        {"weight": weight, "bias": Part("bias")},
        **_shaped(axes, stride="strides", dilation="kernel_dilation"),
        groups=spelling.constant(1),
        padding=Setting(_transposed_padding, spelled="padding"),
        data_format=spelling.constant("NHWC"),
    )


def _recurrent(first: Any, *, both: bool) -> Rule | None:
    """Return the rule of a layer that runs cells over time, which hold the parameters; None for other cells."""
    kind = _LAYERS.get(type(getattr(first, "cell", None)).__name__)
    if kind is None:
        return None
    settings = {
        "hidden_size": Setting(lambda module: first.cell.hidden_features, spelled="hidden_features"),
        "num_layers": spelling.constant(1),
        "bidirectional": spelling.constant(both),
        "batch_first": Setting("time_major", lambda value: not value, "time_major"),
        "dropout": spelling.constant(0.0),
    }
    return Rule(kind, settings=settings)


def _rnn(module: Any) -> Rule | None:
    return None if module.reverse else _recurrent(module, both=False)


def _bidirectional(module: Any) -> Rule | None:
    return _recurrent(module.forward_rnn, both=True)


def _attention(module: Any) -> Rule:
    """Return the rule of attention, which is in a mode only where it drops something."""
    settings = {**spelling.own(num_heads="num_heads", dropout="dropout_rate"), "batch_first": spelling.constant(True)}
    return Rule("attention", _ATTENTION, {**settings, **_TRAINING} if module.dropout_rate else settings)


_FAMILIES: Mapping[str, Callable[[Any], Rule | None]] = {
    "flax.nnx.nn.attention.MultiHeadAttention": _attention,
    "flax.nnx.nn.linear.Conv": _conv,
    "flax.nnx.nn.linear.ConvTranspose": _conv_transpose,
    "flax.nnx.nn.recurrent.RNN": _rnn,
    "flax.nnx.nn.recurrent.Bidirectional": _bidirectional,
}


def rule_of(module: Any) -> Rule | None:
    """Return the rule of a module whose kind its class alone does not tell: how many axes, which cell."""
    for cls in type(module).__mro__:
        family = _FAMILIES.get(f"{cls.__module__}.{cls.__qualname__}")
        if family is not None:
            return family(module)
    return None


# The table --------------------------------------------------------------------------------------------------

_NNX = {
    "linear.Linear": _simple("linear", {"weight": Part("kernel", transpose=_SWAP), "bias": Part("bias")}),
    "linear.LinearGeneral": Rule("linear", _linear_general),
    "linear.Embed": _simple("embedding", {"weight": Part("embedding")}, padding_idx=spelling.constant(None)),
    "normalization.BatchNorm": _simple("batch_norm", {**_AFFINE, **_STATISTICS}, **_BATCH),
    "normalization.LayerNorm": _simple(
        "layer_norm",
        _AFFINE,
        **_EPS,
        normalized_shape=Setting("num_features", lambda size: (size,), "num_features"),
    ),
    "normalization.RMSNorm": _simple("rms_norm", {"weight": Part("scale")}, **_EPS),
    "normalization.GroupNorm": _simple("group_norm", _AFFINE, **_EPS, **spelling.own(groups="num_groups")),
    "normalization.InstanceNorm": _simple("instance_norm", _AFFINE, **_EPS),
    "activations.PReLU": _simple("prelu", {"weight": Part("negative_slope", merge=(0,))}),
    "stochastic.Dropout": Rule("dropout", settings=_DROPOUT),
    **{f"recurrent.{name}": _cell(name) for name in _CELLS},
}

TABLE: Mapping[str, Rule] = {
    **{f"flax.nnx.nn.{name}": rule for name, rule in _NNX.items()},
    "flax.nnx.helpers.Sequential": Rule("sequential"),
}
"""The rule of each class, by qualified name."""
