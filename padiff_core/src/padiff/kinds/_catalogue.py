"""Hold the catalogue of kinds: what a module is in any framework, and how its parameters lie.

The hub of "hub and spoke". The catalogue names, for each kind, its roles (with their canonical layout) and the
settings (hyper-parameters) that change the result. An adapter describes each of its classes once, as a `Rule`
towards this hub; so N frameworks need N tables, never a function for a pair.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

__all__ = ["CATALOGUE", "FUSED", "LAYOUT", "Habit", "Kind", "Part", "Rule", "Setting", "Unit", "same_padding"]

Array = NDArray[Any]

LAYOUT = "data_format"
"""The setting that says where images have their channels."""
FUSED = "fused"
"""The setting that names an activation which the same module applies; a class that does not spell it applies none."""


@attrs.frozen
class Kind:
    """Describe one kind: its roles with their canonical axes, and its settings with their canonical meaning."""

    name: str
    roles: Mapping[str, str] = attrs.field(factory=dict)
    settings: Mapping[str, str] = attrs.field(factory=dict)
    stochastic: bool = False
    outputs: int | None = None
    """How many outputs it has in every framework; further ones (attention weights) are extras."""


@attrs.frozen
class Part:
    """Say where a role's values lie in a native parameter.

    ``parameter`` is a dotted name below the module. The canonical array is the native one without its axis
    ``squeeze`` (of length one), neighbouring axes joined as ``merge`` counts them (``(1, 2)`` makes (in, heads * size)
    of (in, heads, size); ``(0,)`` makes one axis of length one of a scalar), the axes ``flip`` turned round, all axes
    permuted by ``transpose`` (numpy's convention), of that the ``piece``
    ``(index, count)`` along the first axis, of that the ``rows``, ranges ``(start, stop)`` along the first axis joined
    in the given order (where the core splits a packed layer), of that the equal ``blocks`` along the first axis in the
    given order (``blocks[i]`` is the native block that is canonical block ``i``; for gates that a framework orders
    differently).
    """

    parameter: str
    transpose: tuple[int, ...] | None = None
    piece: tuple[int, int] | None = None
    blocks: tuple[int, ...] | None = None
    squeeze: int | None = None
    rows: tuple[tuple[int, int], ...] | None = None
    merge: tuple[int, ...] | None = None
    flip: tuple[int, ...] = ()

    @property
    def permuted(self) -> bool:
        """Return whether it is the whole parameter, with its axes in another order at most."""
        changed = self.squeeze is not None or self.merge is not None or self.blocks is not None
        return not (self.partial or changed or self.flip)

    @property
    def partial(self) -> bool:
        """Return whether it is only a part of the parameter."""
        return self.piece is not None or self.rows is not None

    def read(self, native: Array) -> Array:
        """Return the canonical array; a view of ``native`` unless blocks are permuted or several ranges joined."""
        views = self._views(native)
        view = views[0] if len(views) == 1 else np.concatenate(views)
        if self.blocks is None:
            return view
        return np.concatenate([self._block(view, source) for source in self.blocks])

    def write(self, native: Array, canonical: Array) -> None:
        """Write a canonical array into its place in ``native``, which lies in C order; shapes must agree exactly.

        Raises ``ValueError`` when they do not: a shape is never bent to fit.
        """
        views = self._views(native)
        shape = (sum(len(view) for view in views), *views[0].shape[1:]) if self.rows else views[0].shape
        if shape != canonical.shape:
            msg = f"canonical shape {canonical.shape} does not fit {shape} of {self.parameter!r}"
            raise ValueError(msg)
        if self.blocks is not None:
            for target, source in enumerate(self.blocks):
                self._block(views[0], source)[...] = self._block(canonical, target)
            return
        if not self.rows:
            views[0][...] = canonical
            return
        start = 0
        for view in views:
            view[...] = canonical[start : start + len(view)]
            start += len(view)

    def _views(self, native: Array) -> list[Array]:
        view = native if self.squeeze is None else native.squeeze(self.squeeze)
        view = view if self.merge is None else view.reshape(_merged(view.shape, self.merge))
        view = np.flip(view, self.flip) if self.flip else view
        view = view if self.transpose is None else view.transpose(self.transpose)
        if self.piece is not None:
            index, count = self.piece
            size = view.shape[0] // count
            view = view[index * size : (index + 1) * size]
        return [view] if self.rows is None else [view[start:stop] for start, stop in self.rows]

    def _block(self, view: Array, index: int) -> Array:
        size = view.shape[0] // len(self.blocks or ())
        return view[index * size : (index + 1) * size]


def _merged(shape: tuple[int, ...], counts: tuple[int, ...]) -> list[int]:
    """Return the shape in which so many neighbouring axes are one; an axis made of none has length one."""
    axes = iter(shape)
    return [math.prod(itertools.islice(axes, count)) for count in counts]


def _same(value: Any) -> Any:
    return value


@attrs.frozen
class Setting:
    """Say how a class spells one hyper-parameter.

    ``read`` is the attribute's name, or a function of the native module; ``convert`` takes the native value to the
    catalogue's convention (a momentum, a padding); ``spelled`` is the name a user would type in the constructor.
    ``derive`` takes the module itself there, where the native value alone does not tell: what "same" really pads.
    """

    read: str | Callable[[Any], Any]
    convert: Callable[[Any], Any] = _same
    spelled: str | None = None
    derive: Callable[[Any], Any] | None = None

    def native(self, module: Any) -> Any:
        """Return the value as the framework holds it."""
        return getattr(module, self.read) if isinstance(self.read, str) else self.read(module)

    def value(self, module: Any) -> Any:
        """Return the value in the catalogue's convention."""
        return self.convert(self.native(module)) if self.derive is None else self.derive(module)


@attrs.frozen
class Unit:
    """Name the smallest set of parameters that belongs together: a kind, and for each role where it lies."""

    kind: str | None
    roles: Mapping[str, Part]


@attrs.frozen
class Rule:
    """Describe one class of a framework towards the catalogue.

    ``units`` lists the parameters that modules of this class hold, by unit name: ``{"": Unit("linear", ...)}`` for
    most, ``q``/``k``/``v``/``out`` of kind ``linear`` for a packed attention, ``l0``, ``l0_reverse``, ... of kind
    ``lstm_cell`` for an LSTM. It may be a function of the native module where the number depends on it. Roles whose
    native parameter is absent or None (no bias) are left out by the core.
    """

    kind: str
    units: Mapping[str, Unit] | Callable[[Any], Mapping[str, Unit]] = attrs.field(factory=dict)
    settings: Mapping[str, Setting] = attrs.field(factory=dict)

    def units_of(self, module: Any) -> Mapping[str, Unit]:
        """Return the units of one native module."""
        return self.units(module) if callable(self.units) else self.units


@attrs.frozen
class Habit:
    """Recognise a class that every model copies under a new name: by what it is called and what it holds."""

    name: str
    """A regular expression that is searched for in the class's bare name."""
    attributes: tuple[str, ...]
    rule: Rule

    def shown_by(self, module: Any) -> bool:
        """Return whether the class's name fits, and the module has the attributes."""
        named = re.search(self.name, type(module).__name__) is not None
        return named and all(hasattr(module, name) for name in self.attributes)


def same_padding(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], sizes: Sequence[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """Return what "same" pads, as (before, after) for each spatial axis: the odd one comes after.

    The output then has ``ceil(size / stride)`` elements. Without ``sizes`` the stride is taken to divide them.
    """
    reaches = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    rests = [s if sizes is None else sizes[i] % s or s for i, s in enumerate(stride)]
    totals = [max(reach - rest, 0) for reach, rest in zip(reaches, rests, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


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
    Kind("instance_norm", {**_NORM, **_RUNNING}, {**_EPS, "momentum": _BATCH["momentum"]}),
    Kind("rms_norm", {"weight": "(features,)"}, _EPS),
    Kind("local_response_norm", {}, {"size": "int", "alpha": "float", "beta": "float", "k": "float"}),
    Kind("prelu", {"weight": "(features,) or (1,)"}),
    *(Kind(f"{name}_cell", _CELL) for name in ("lstm", "gru")),
    Kind("rnn_cell", _CELL, {"activation": "tanh or relu"}),
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
