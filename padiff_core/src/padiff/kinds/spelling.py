"""Build rules of classes: how settings are spelled and where parameters lie, for what many frameworks do alike.

The catalogue's conventions are torch's. What is said here of a kind (`conv`, `pool`, `attention`, ...) is how torch
spells it; frameworks that follow torch use it as it is, others say in what they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from padiff.kinds._catalogue import CATALOGUE
from padiff.kinds._layout import Part
from padiff.kinds._layout import interleaved as interleaved
from padiff.kinds._rules import Habit, Rule, Setting, Unit
from padiff.kinds.conversions import around, each, flat_pairs, function_name, same_padding, spread

Settings = dict[str, Setting]

# Settings ---------------------------------------------------------------------------------------------------


def constant(value: Any) -> Setting:
    """Return a setting that is the same for every module of the class."""
    return Setting(lambda module: value)


def own(*names: str, **attributes: str) -> Settings:
    """Return settings that the class spells as the catalogue does, and those by another attribute.

    A leading underscore belongs to the attribute alone: the user typed the name without it.
    """
    pairs = {**{name: name for name in names}, **attributes}
    return {name: Setting(attribute, spelled=attribute.lstrip("_")) for name, attribute in pairs.items()}


def shaped(axes: int, *names: str, **attributes: str) -> Settings:
    """Return settings as `own` does, with one value for each axis."""
    pairs = {**{name: name for name in names}, **attributes}
    return {name: Setting(attribute, each(axes), attribute.lstrip("_")) for name, attribute in pairs.items()}


TRAINING: Mapping[str, Setting] = {"training": Setting("training")}
LAYER: Mapping[str, Setting] = {**own("norm_first"), "activation": Setting("activation", function_name, "activation")}
RECURRENT: Mapping[str, Setting] = {
    **own("hidden_size", "num_layers", "bidirectional", "batch_first", "dropout"),
    **TRAINING,
}


def normalized_shape(attribute: str = "normalized_shape") -> Settings:
    """Return the setting of layer norms that says which axes are normalised."""
    return {"normalized_shape": Setting(attribute, tuple, "normalized_shape")}


def padding(axes: int, mark: str = "") -> Setting:
    """Return a padding in any of its spellings; ``mark`` is what the class puts before the names of its attributes."""
    return Setting(
        f"{mark}padding",
        spelled="padding",
        derive=lambda m: around(getattr(m, f"{mark}padding"), axes, getattr(m, f"{mark}data_format", "NCHW")),
    )


def _named_padding(axes: int, mark: str) -> Setting:
    """Return the padding of a convolution; with a stride, ``same`` goes by the size and stays a name."""
    given = padding(axes, mark)

    def pairs(module: Any) -> Any:
        found = given.value(module)
        if found == "valid":
            return ((0, 0),) * axes
        kernel, stride, dilation = (
            spread(getattr(module, f"{mark}{name}"), axes) for name in ("kernel_size", "stride", "dilation")
        )
        return same_padding(kernel, stride, dilation) if found == "same" and set(stride) == {1} else found

    return attrs.evolve(given, derive=pairs)


def conv(axes: int, *, transposed: bool = False, mark: str = "", data_format: Setting | None = None) -> Settings:
    """Return the settings of a convolution; ``mark`` as in `padding`, ``data_format`` where it is not fixed."""
    return {
        **shaped(axes, **{name: f"{mark}{name}" for name in ("stride", "dilation")}),
        **(shaped(axes, "output_padding") if transposed else {}),
        "padding": _named_padding(axes, mark),
        **own(**{name: f"{mark}{name}" for name in ("padding_mode", "groups")}),
        "data_format": data_format or constant("NCHW"),
    }


def pool(axes: int, kernel: str = "kernel_size", padding: Setting | None = None) -> Settings:
    """Return the settings of a pooling; without a stride the kernel's size stands for it."""
    return {
        "kernel_size": Setting(kernel, each(axes), "kernel_size"),
        "stride": Setting(lambda m: getattr(m, kernel) if m.stride is None else m.stride, each(axes), "stride"),
        "padding": padding or Setting("padding", lambda value: around(value, axes), "padding"),
        **own("ceil_mode"),
    }


def avg_pool(axes: int) -> Settings:
    """Return the settings of an average pooling."""
    divisor = Setting(lambda m: getattr(m, "divisor_override", None), spelled="divisor_override")
    return {**pool(axes), **own("count_include_pad"), "divisor": divisor}


def dropout(axis: str, p: str | Setting = "p", mode: str = "upscale_in_train") -> Settings:
    """Return the settings of a dropout; ``axis`` is what is dropped together."""
    given = Setting(p, float, p) if isinstance(p, str) else p
    return {"p": given, "mode": constant(mode), **TRAINING, "axis": constant(axis)}


def pad(axes: int, mode: str) -> Settings:
    """Return the settings of a padding, which are flat and begin with the last axis; without a value it is zeros."""
    value = Setting(lambda m: getattr(m, "value", 0.0), float, "value") if mode == "constant" else constant(0.0)
    return {"padding": Setting("padding", flat_pairs(axes), "padding"), "mode": constant(mode), "value": value}


_IMAGE_AXES = {"linear": 1, "trilinear": 3}


def upsample(mode: str | None = None) -> Settings:
    """Return the settings of an upsampling, or of one that is made for a mode; ``nearest`` is taken for 2-D."""

    def sized(name: str) -> Callable[[Any], Any]:
        def read(module: Any) -> Any:
            value = getattr(module, name)
            return None if value is None else spread(value, _IMAGE_AXES.get(getattr(module, "mode", ""), 2))

        return read

    size, scale = (Setting(sized(name), spelled=name) for name in ("size", "scale_factor"))
    if mode is not None:
        return {"size": size, "scale": scale, "mode": constant(mode), "align_corners": constant(mode == "bilinear")}
    corners = Setting("align_corners", bool, "align_corners")
    return {"size": size, "scale": scale, **own("mode"), "align_corners": corners}


# Units ------------------------------------------------------------------------------------------------------

AFFINE = ("weight", "bias")
NORM = (*AFFINE, "running_mean", "running_var")
CELL = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def simple(kind: str, *roles: str, settings: Mapping[str, Setting] | None = None, **named: str | Part) -> Rule:
    """Return the rule of a class with one unit at most; ``named`` roles lie under another name or in a Part."""
    parts = {role: Part(role) for role in roles}
    parts |= {role: Part(part) if isinstance(part, str) else part for role, part in named.items()}
    return Rule(kind, {"": Unit(kind, parts)} if parts else {}, settings or {})


def _exposed(module: Any, layer: int, suffix: str, role: str) -> Part:
    return Part(f"{role}_l{layer}{suffix}")


def recurrent_units(
    kind: str, part: Callable[[Any, int, str, str], Part] = _exposed
) -> Callable[[Any], Mapping[str, Unit]]:
    """Return the units of a recurrent module: one cell for each layer and direction.

    ``part(module, layer, suffix, role)`` says where a role lies, ``suffix`` being ``_reverse`` for the way back.
    """

    def units(module: Any) -> Mapping[str, Unit]:
        found = {}
        both = getattr(module, "bidirectional", getattr(module, "num_directions", 1) == 2)
        for layer in range(module.num_layers):
            for suffix in ("", "_reverse") if both else ("",):
                name = f"l{layer}{suffix}"
                found[name] = Unit(f"{kind}_cell", {role: part(module, layer, suffix, role) for role in CELL})
                if getattr(module, "proj_size", 0):
                    projection = {"weight_hr": part(module, layer, suffix, "weight_hr")}
                    found[f"{name}_projection"] = Unit(None, projection)
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
        found["appended"] = Unit(None, {name: Part(name) for name in ("bias_k", "bias_v")})
    return found


# Rules ------------------------------------------------------------------------------------------------------

ATTENTION = Rule("attention", _attention, {**own("num_heads", "dropout", "batch_first"), **TRAINING})
RUNNING = own("eps", "momentum", track="track_running_stats")
BATCH_NORM = simple(
    "batch_norm",
    *NORM,
    settings={
        **RUNNING,
        # The batch's statistics are used where it keeps none of its own, also in evaluation.
        "training": Setting(lambda m: m.training or (m.running_mean is None and m.running_var is None)),
    },
)
GELU_ERF = Rule("gelu", settings={"approximate": constant("none")})
GELU_TANH = Rule("gelu", settings={"approximate": constant("tanh")})
RMS_NORM = simple("rms_norm", "weight", settings=own(eps="variance_epsilon"))
DROP_PATH = Habit(r"DropPath$", ("drop_prob",), Rule("dropout", settings=dropout("sample", "drop_prob")))
_BY_NAME = {name.replace("_", ""): name for name in CATALOGUE}


def plain(classes: str) -> dict[str, Rule]:
    """Return the rules of classes that are called as their kind is, and have neither parameters nor settings."""
    return {name: Rule(_BY_NAME[name.lower()]) for name in classes.split()}


def recurrent(
    rnn: str = "RNN",
    part: Callable[[Any, int, str, str], Part] = _exposed,
    settings: Mapping[str, Setting] = RECURRENT,
    activation: Mapping[str, Setting] | None = None,
) -> dict[str, Rule]:
    """Return the rules of LSTM, GRU and the plain recurrent network, which is called ``rnn``, and of their cells."""
    chosen = own(activation="nonlinearity") if activation is None else activation
    found = {}
    for name, kind, more in (("LSTM", "lstm", {}), ("GRU", "gru", {}), (rnn, "rnn", chosen)):
        found[name] = Rule(kind, recurrent_units(kind, part), {**settings, **more})
        found[f"{name}Cell"] = simple(f"{kind}_cell", *CELL, settings=more)
    return found


def transformer(layer: Mapping[str, Setting] = LAYER) -> dict[str, Rule]:
    """Return the rules of a transformer's parts, but for attention."""
    layers = (f"transformer_{part}_layer" for part in ("encoder", "decoder"))
    names = ("TransformerEncoderLayer", "TransformerDecoderLayer")
    rules = {name: Rule(kind, settings=layer) for name, kind in zip(names, layers, strict=True)}
    return {**rules, **plain("TransformerEncoder TransformerDecoder Transformer")}


def activations(axis: str, hard: tuple[str, str], mark: str = "") -> dict[str, Rule]:
    """Return the rules of activations that are called as in torch; ``hard`` names the bounds of Hardtanh."""
    names = "ReLU ReLU6 Sigmoid Tanh Mish Softsign Tanhshrink Hardswish Hardsigmoid LogSigmoid SELU"
    by_axis = own(axis=axis)
    return {
        **plain(names),
        "LeakyReLU": Rule("leaky_relu", settings=own(slope=f"{mark}negative_slope")),
        "ELU": Rule("elu", settings=own(alpha=f"{mark}alpha")),
        "CELU": Rule("celu", settings=own(alpha=f"{mark}alpha")),
        "Softplus": Rule("softplus", settings=own(beta=f"{mark}beta", threshold=f"{mark}threshold")),
        "Hardtanh": Rule("hardtanh", settings=own(min=hard[0], max=hard[1])),
        "Softmax": Rule("softmax", settings=by_axis),
        "LogSoftmax": Rule("log_softmax", settings=by_axis),
        "GLU": Rule("glu", settings=by_axis),
    }


def transformers_activations() -> dict[str, Rule]:
    """Return the rules of the activations of Hugging Face's transformers, and of what was ported from there."""
    others = {"SiLUActivation": "silu", "MishActivation": "mish", "LinearActivation": "identity"}
    return {
        "GELUActivation": GELU_ERF,
        **dict.fromkeys(("NewGELUActivation", "FastGELUActivation"), GELU_TANH),
        **{name: Rule(kind) for name, kind in others.items()},
    }


def table(files: Mapping[str, Mapping[str, Rule]]) -> dict[str, Rule]:
    """Return rules by qualified name, from rules by file and class."""
    return {f"{file}.{name}": rule for file, rules in files.items() for name, rule in rules.items()}
