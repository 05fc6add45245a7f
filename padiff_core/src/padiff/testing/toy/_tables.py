"""Say what the toy layers of both dialects are towards the catalogue of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from padiff.kinds import Part, Rule, Setting, Unit


def _own(**names: str) -> dict[str, Setting]:
    return {setting: Setting(name, spelled=name) for setting, name in names.items()}


def _is(value: Any) -> Setting:
    return Setting(lambda module: value)


def _turned(name: str, spelled: str) -> dict[str, Setting]:
    return {name: Setting(spelled, lambda keep: round(1 - keep, 12), spelled)}


def _one(kind: str, roles: Mapping[str, Part], settings: Mapping[str, Setting] | None = None) -> Rule:
    return Rule(kind, {"": Unit(kind, roles)}, settings or {})


def _parts(**names: str) -> dict[str, Part]:
    return {role: Part(name) for role, name in names.items()}


def _image(layout: str, stride: str, padding: str) -> dict[str, Setting]:
    return {
        "stride": Setting(stride, lambda n: (n, n), stride),
        "padding": Setting(padding, lambda n: ((n, n), (n, n)), padding),
        "data_format": _is(layout),
    }


_ATTENTION = _own(num_heads="heads")
_TIME = {"batch_first": Setting("time_first", lambda first: not first, "time_first")}
_DROPOUT = {"mode": _is("upscale_in_train"), "axis": _is("element"), **_own(training="training")}
_MODE = {**_own(training="training"), "track": _is(True)}
_GATES = (1, 0, 3, 2)


def _packed() -> dict[str, Unit]:
    parts = {
        name: {"weight": Part("packed", piece=(i, 3)), "bias": Part("packed_bias", piece=(i, 3))}
        for i, name in enumerate("qkv")
    }
    parts["out"] = _parts(weight="out.weight", bias="out.bias")
    return {name: Unit("linear", roles) for name, roles in parts.items()}


def _apart() -> dict[str, Unit]:
    names = {"q": "query", "k": "key", "v": "value", "out": "result"}
    return {
        unit: Unit("linear", {"weight": Part(f"{name}.kernel", transpose=(1, 0)), "bias": Part(f"{name}.offset")})
        for unit, name in names.items()
    }


def _table(module: str, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    return {f"padiff.testing.toy.{module}.{name}": rule for name, rule in rules.items()}


_rounded: Callable[[bool], str] = lambda rough: "tanh" if rough else "none"  # noqa: E731

ROWS = _table(
    "rows",
    {
        "Linear": _one("linear", _parts(weight="weight", bias="bias")),
        "Conv2d": _one("conv2d", _parts(weight="weight", bias="bias"), _image("NCHW", "stride", "padding")),
        "LayerNorm": _one("layer_norm", _parts(weight="weight", bias="bias"), _own(eps="eps")),
        "BatchNorm": _one(
            "batch_norm",
            _parts(weight="weight", bias="bias", running_mean="running_mean", running_var="running_var"),
            {**_own(eps="eps", momentum="momentum"), **_MODE},
        ),
        "Embedding": _one("embedding", _parts(weight="weight")),
        "Dropout": Rule("dropout", settings={**_own(p="p"), **_DROPOUT}),
        "ReLU": Rule("relu"),
        "Tanh": Rule("tanh"),
        "GELU": Rule("gelu", settings=_own(approximate="approximate")),
        "Attention": Rule("attention", _packed(), {**_ATTENTION, "batch_first": _is(True)}),
        "LSTMCell": _one("lstm_cell", {name: Part(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}),
        "Sequential": Rule("sequential"),
    },
)

COLUMNS = _table(
    "columns",
    {
        "Dense": _one("linear", {"weight": Part("kernel", transpose=(1, 0)), "bias": Part("offset")}),
        "Conv": _one(
            "conv2d",
            {"weight": Part("kernel", transpose=(3, 2, 0, 1)), "bias": Part("offset")},
            _image("NHWC", "step", "margin"),
        ),
        "LayerNormalization": _one("layer_norm", _parts(weight="gamma", bias="beta"), _own(eps="epsilon")),
        "BatchNormalization": _one(
            "batch_norm",
            _parts(weight="gamma", bias="beta", running_mean="moving_mean", running_var="moving_variance"),
            {**_own(eps="epsilon"), **_turned("momentum", "keep"), **_MODE},
        ),
        "Embed": _one("embedding", _parts(weight="table")),
        "Drop": Rule("dropout", settings={**_turned("p", "keep"), **_DROPOUT}),
        "Rectifier": Rule("relu"),
        "Tangent": Rule("tanh"),
        "Gelu": Rule("gelu", settings={"approximate": Setting("rough", _rounded, "rough")}),
        "SelfAttention": Rule("attention", _apart(), {**_ATTENTION, **_TIME}),
        "Cell": _one(
            "lstm_cell",
            {
                "weight_ih": Part("kernel", transpose=(1, 0), blocks=_GATES),
                "weight_hh": Part("recurrent", transpose=(1, 0), blocks=_GATES),
                "bias_ih": Part("offset", blocks=_GATES),
                "bias_hh": Part("recurrent_offset", blocks=_GATES),
            },
        ),
        "Stack": Rule("sequential"),
    },
)
