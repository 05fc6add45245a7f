"""Build rules of classes: how settings are spelled and where parameters lie, for what many frameworks do alike.

The catalogue's conventions are torch's. What is said here of a kind (`conv`, `pool`, `attention`, ...) is how torch
spells it; frameworks that follow torch use it as it is, others say in what they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from padiff.kinds._catalogue import CATALOGUE
from padiff.kinds._layout import Part
from padiff.kinds._rules import Habit, Rule, Setting, Unit
from padiff.kinds.conversions import around, each, flat_pairs, function_name, same_padding, spread

__all__ = [
    "AFFINE",
    "ATTENTION",
    "BATCH_NORM",
    "CELL",
    "CHANNEL_SOFTMAX",
    "DROP_PATH",
    "GELU_ERF",
    "GELU_TANH",
    "LAYER",
    "NORM",
    "RECURRENT",
    "RMS_NORM",
    "TRAINING",
    "avg_pool",
    "constant",
    "conv",
    "dropout",
    "normalized_shape",
    "own",
    "pad",
    "plain",
    "pool",
    "recurrent_units",
    "shaped",
    "simple",
    "table",
    "transformers_activations",
    "upsample",
]

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


def _named_padding(axes: int) -> Setting:
    """Return a reader of a padding that is symmetric or has a name; ``same`` takes no stride."""

    def pairs(module: Any) -> tuple[tuple[Any, Any], ...]:
        if module.padding == "same":
            return same_padding(*(spread(getattr(module, one), axes) for one in ("kernel_size", "stride", "dilation")))
        return around(axes)(0 if module.padding == "valid" else module.padding)

    return Setting("padding", spelled="padding", derive=pairs)


def conv(axes: int, *, transposed: bool = False) -> Settings:
    """Return the settings of a convolution."""
    return {
        **shaped(axes, "stride", "dilation", *(("output_padding",) if transposed else ())),
        "padding": _named_padding(axes),
        **own("padding_mode", "groups"),
        "data_format": constant("NCHW"),
    }


def pool(axes: int, kernel: str = "kernel_size") -> Settings:
    """Return the settings of a pooling; without a stride the kernel's size stands for it."""
    return {
        "kernel_size": Setting(kernel, each(axes), "kernel_size"),
        "stride": Setting(lambda m: getattr(m, kernel) if m.stride is None else m.stride, each(axes), "stride"),
        "padding": Setting("padding", around(axes), "padding"),
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
    """Return the settings of a padding, which are flat and begin with the last axis."""
    value = Setting("value", float, "value") if mode == "constant" else constant(0.0)
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


def recurrent_units(kind: str) -> Callable[[Any], Mapping[str, Unit]]:
    """Return the units of a recurrent module: one cell for each layer and direction."""

    def units(module: Any) -> Mapping[str, Unit]:
        found = {}
        for layer in range(module.num_layers):
            for suffix in ("", "_reverse") if module.bidirectional else ("",):
                name = f"l{layer}{suffix}"
                found[name] = Unit(f"{kind}_cell", {role: Part(f"{role}_{name}") for role in CELL})
                if getattr(module, "proj_size", 0):
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
        found["appended"] = Unit(None, {name: Part(name) for name in ("bias_k", "bias_v")})
    return found


# Rules ------------------------------------------------------------------------------------------------------

ATTENTION = Rule("attention", _attention, {**own("num_heads", "dropout", "batch_first"), **TRAINING})
BATCH_NORM = simple(
    "batch_norm",
    *NORM,
    settings={
        **own("eps", "momentum", track="track_running_stats"),
        # The batch's statistics are used where it keeps none of its own, also in evaluation.
        "training": Setting(lambda m: m.training or (m.running_mean is None and m.running_var is None)),
    },
)
GELU_ERF = Rule("gelu", settings={"approximate": constant("none")})
GELU_TANH = Rule("gelu", settings={"approximate": constant("tanh")})
CHANNEL_SOFTMAX = Rule("softmax", settings={"axis": constant(-3)})
RMS_NORM = simple("rms_norm", "weight", settings=own(eps="variance_epsilon"))
DROP_PATH = Habit(r"DropPath$", ("drop_prob",), Rule("dropout", settings=dropout("sample", "drop_prob")))
_BY_NAME = {name.replace("_", ""): name for name in CATALOGUE}


def plain(classes: str) -> dict[str, Rule]:
    """Return the rules of classes that are called as their kind is, and have neither parameters nor settings."""
    return {name: Rule(_BY_NAME[name.lower()]) for name in classes.split()}


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
