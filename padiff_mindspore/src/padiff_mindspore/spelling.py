"""Say how MindSpore's classes spell the catalogue's settings.

``pad_mode`` is read as what it really pads; the momentum of ``nn``'s running averages is 1 - torch's; pooling cells
hold their settings in the operation that they call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from padiff.kinds import Setting, same_padding

__all__ = [
    "ALIGNED",
    "ATTENTION",
    "BATCH",
    "BILINEAR",
    "DROPPED",
    "GELU",
    "KEPT",
    "KEPT_OR_DROPPED",
    "LAYER",
    "LAYER_NORM",
    "LINEAR",
    "LRN",
    "MINT_BATCH",
    "NEAREST",
    "PADDED",
    "RECURRENT",
    "REFLECTION",
    "RNN",
    "avg_pool",
    "constant",
    "conv",
    "dropout",
    "image_format",
    "max_pool",
    "mint_avg_pool",
    "mint_conv",
    "mint_pool",
    "note_size",
    "one_axis",
    "output_size",
    "own",
    "pad",
    "padded_axes",
    "shaped",
    "upsample",
    "within",
]

# Values in the catalogue's convention -----------------------------------------------------------------------


def _tuple(value: Any, axes: int) -> tuple[Any, ...]:
    """Return one value for each axis: of more than that (batch, channels, an axis of length one) the last ones."""
    if not isinstance(value, tuple | list):
        return (value,) * axes
    return tuple(value) * axes if len(value) == 1 and axes > 1 else tuple(value)[-axes:]


def _each(axes: int) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: _tuple(value, axes)


def _around(axes: int) -> Callable[[Any], tuple[tuple[int, int], ...]]:
    """Return a converter of symmetric paddings to (before, after) pairs."""
    return lambda value: tuple((one, one) for one in _tuple(value, axes))


def _pairs(flat: Any, axes: int) -> tuple[tuple[int, int], ...]:
    """Return pairs, from one number or from (before, after) for each axis, the first axis first."""
    values = (flat,) * (2 * axes) if isinstance(flat, int) else tuple(flat)[-2 * axes :]
    return tuple(zip(values[::2], values[1::2], strict=True))


def _flat_pairs(axes: int) -> Callable[[Any], tuple[tuple[int, int], ...]]:
    """Return a converter of a pad's flat list, last axis first, to pairs, first axis first."""
    return lambda value: _pairs(value, axes)[::-1]


def padded_axes(pairs: Any) -> tuple[tuple[int, int], ...]:
    """Return the pairs of all axes from the first padded one."""
    values = [tuple(pair) for pair in (pairs.tolist() if hasattr(pairs, "tolist") else pairs)]
    while values and values[0] == (0, 0):
        values.pop(0)
    return tuple(values)


def _complement(value: Any) -> float:
    """Return 1 - value, without the dust of the subtraction."""
    return round(1.0 - float(value), 12)


def _function_name(value: Any) -> str:
    """Return the common name of an activation, given as a function, a cell or a string."""
    if isinstance(value, str):
        return value
    name = str(getattr(value, "__name__", type(value).__name__)).lower()
    return f"{name}_tanh" if getattr(value, "approximate", "none") == "tanh" else name


def one_axis(axis: Any) -> int:
    """Return the axis of an operation that keeps it in a tuple."""
    (one,) = axis if isinstance(axis, tuple) else (axis,)
    return int(one)


def image_format(value: Any) -> str:
    """Return NCHW for channels first in any number of axes, NHWC for channels last."""
    return "NHWC" if str(value).upper().endswith("C") else "NCHW"


# Paddings ---------------------------------------------------------------------------------------------------

_sizes: WeakKeyDictionary[Any, tuple[int, ...]] = WeakKeyDictionary()


def note_size(native: Any, args: tuple[Any, ...]) -> None:
    """Remember the shape that a cell is called on, where ``pad_mode="same"`` makes its padding depend on it."""
    if str(getattr(native, "pad_mode", "")).lower() == "same" and args and hasattr(args[0], "shape"):
        _sizes[native] = tuple(args[0].shape)


def _pad_mode(axes: int, flat: Callable[[Any], Any], *, transposed: bool = False) -> Setting:
    """Return a reader of what a pad_mode really pads: ``same`` on the size that the cell last saw.

    A transposed convolution crops to ``size * stride`` instead, whatever the size.
    """

    def pairs(module: Any) -> tuple[tuple[int, int], ...]:
        mode = module.pad_mode.lower()
        if mode == "pad":
            return _pairs(flat(module), axes)
        if mode == "valid":
            return ((0, 0),) * axes
        sizes = None if transposed else _sizes.get(module)
        dilation = _tuple(getattr(module, "dilation", 1), axes)
        kernel, stride = _tuple(module.kernel_size, axes), _tuple(module.stride, axes)
        return same_padding(kernel, stride, dilation, None if sizes is None else sizes[-axes:])

    return Setting(lambda module: module.pad_mode.lower(), spelled="pad_mode", derive=pairs)


def _named_padding(axes: int) -> Setting:
    """Return a reader of ``mint.nn``'s padding, which is symmetric or has a name; ``same`` takes no stride there."""

    def pairs(module: Any) -> tuple[tuple[int, int], ...]:
        if module.padding == "same":
            return same_padding(module.kernel_size, module.stride, module.dilation)
        return _around(axes)(0 if module.padding == "valid" else module.padding)

    return Setting("padding", spelled="padding", derive=pairs)


def _primitive(module: Any) -> Any:
    """Return the operation that a pooling cell holds its settings in."""
    return module.max_pool if hasattr(module, "max_pool") else module.avg_pool


def _of_primitive(name: str, default: Any) -> Callable[[Any], Any]:
    return lambda module: getattr(_primitive(module), name, default)


def _pool_pads(module: Any) -> tuple[int, ...]:
    """Return (before, after) of all three axes: MindSpore pools in 3-D whatever the cell."""
    primitive = _primitive(module)
    symmetric = getattr(primitive, "pads", None)
    return primitive.pad_list if symmetric is None else tuple(one for pad in symmetric for one in (pad, pad))


# Settings ---------------------------------------------------------------------------------------------------


def constant(value: Any) -> Setting:
    return Setting(lambda module: value)


def own(*names: str, **spelled: str) -> dict[str, Setting]:
    """Return settings that MindSpore spells as the catalogue does, and those it spells otherwise."""
    pairs = {**{name: name for name in names}, **spelled}
    return {name: Setting(native, spelled=native) for name, native in pairs.items()}


def shaped(axes: int, *names: str) -> dict[str, Setting]:
    return {name: Setting(name, _each(axes), name) for name in names}


TRAINING = {"training": Setting("training")}


def conv(axes: int, *, transposed: bool = False) -> dict[str, Setting]:
    outer = {"output_padding": Setting(lambda m: getattr(m, "output_padding", 0), _each(axes), "output_padding")}
    return {
        **shaped(axes, "stride", "dilation"),
        "padding": _pad_mode(axes, lambda m: m.padding, transposed=transposed),
        "padding_mode": constant("zeros"),
        **own(groups="group"),
        "data_format": Setting("data_format", image_format, "data_format"),
        **(outer if transposed else {}),
    }


def mint_conv(axes: int, *, transposed: bool = False) -> dict[str, Setting]:
    return {
        **shaped(axes, "stride", "dilation", *(("output_padding",) if transposed else ())),
        "padding": _named_padding(axes),
        **own("padding_mode", "groups"),
        "data_format": constant("NCHW"),
    }


def _pool(axes: int) -> dict[str, Setting]:
    return {
        **shaped(axes, "kernel_size", "stride"),
        "padding": _pad_mode(axes, _pool_pads),
        "ceil_mode": Setting(_of_primitive("ceil_mode", False), bool, "ceil_mode"),
    }


def max_pool(axes: int) -> dict[str, Setting]:
    return {**_pool(axes), "dilation": Setting(_of_primitive("dilation", 1), _each(axes), "dilation")}


def _counts_padding(module: Any) -> bool:
    """Return whether zeros of the padding count: with pad_mode="same" never."""
    return module.pad_mode.lower() != "same" and bool(getattr(_primitive(module), "count_include_pad", True))


def avg_pool(axes: int) -> dict[str, Setting]:
    return {
        **_pool(axes),
        "count_include_pad": Setting(_counts_padding, spelled="count_include_pad"),
        "divisor": Setting(_of_primitive("divisor_override", None), lambda value: value or None, "divisor_override"),
    }


def mint_pool(axes: int, **settings: Setting) -> dict[str, Setting]:
    return {
        **shaped(axes, "kernel_size"),
        "stride": Setting(lambda m: m.kernel_size if m.stride is None else m.stride, _each(axes), "stride"),
        "padding": Setting("padding", _around(axes), "padding"),
        **own("ceil_mode"),
        **settings,
    }


def mint_avg_pool(axes: int) -> dict[str, Setting]:
    divisor = Setting(lambda m: getattr(m, "divisor_override", None), spelled="divisor_override")
    return mint_pool(axes, divisor=divisor, **own("count_include_pad"))


def output_size(axes: int, read: str | Callable[[Any], Any] = "output_size") -> dict[str, Setting]:
    """Return the size of an adaptive pooling, where -1 stands for the input's own."""

    def sizes(value: Any) -> tuple[int | None, ...]:
        values = _tuple(value.tolist() if hasattr(value, "tolist") else value, axes)
        return tuple(None if one == -1 else one for one in values)

    return {"output_size": Setting(read, sizes, "output_size")}


def _batch_statistics(module: Any) -> bool:
    given = module.use_batch_statistics
    return bool(module.training if given is None else given)


BATCH = {
    **own("eps"),
    # The cell keeps 1 - what the user typed.
    "momentum": Setting(lambda m: _complement(m.momentum), _complement, "momentum"),
    "training": Setting(_batch_statistics),
    "track": constant(True),
}


def within(child: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return settings that stand at a child."""

    def read(setting: Setting) -> Callable[[Any], Any]:
        return lambda module: setting.native(getattr(module, child))

    return {name: attrs.evolve(setting, read=read(setting)) for name, setting in settings.items()}


MINT_BATCH = {
    **own("eps", "momentum", track="track_running_stats"),
    "training": Setting(lambda m: m.training or (m.running_mean is None and m.running_var is None)),
}
LINEAR = {"fused": Setting("activation", lambda value: None if value is None else _function_name(value), "activation")}


def _nonlinearity(module: Any) -> str:
    """Return what the steps of an RNN apply."""
    return "relu" if type(module.rnn).__name__.endswith("Relu") else "tanh"


RECURRENT = {**own("hidden_size", "num_layers", "bidirectional", "batch_first", "dropout"), **TRAINING}
RNN = {**RECURRENT, "activation": Setting(_nonlinearity, spelled="nonlinearity")}
ATTENTION = {**own("num_heads", "dropout", "batch_first"), **TRAINING}
LAYER = {**own("norm_first"), "activation": Setting("activation", _function_name, "activation")}


def _normalized(module: Any) -> tuple[int, ...]:
    """Return the axes that are normalised: from begin_norm_axis, which need not be all that the weight has."""
    shape, begin = tuple(module.normalized_shape), module.begin_norm_axis
    return shape[begin:] if begin < 0 else shape


LAYER_NORM = {**own(eps="epsilon"), "normalized_shape": Setting(_normalized, spelled="normalized_shape")}


def dropout(axis: str, p: Setting) -> dict[str, Setting]:
    return {"p": p, "mode": constant("upscale_in_train"), **TRAINING, "axis": constant(axis)}


KEPT = Setting(lambda m: _complement(m.keep_prob), spelled="p")
KEPT_OR_DROPPED = Setting(lambda m: _complement(m.keep_prob) if m.p is None else m.p, float, "p")
DROPPED = Setting("p", float, "p")


def pad(axes: int, mode: str, value: Setting | None = None) -> dict[str, Setting]:
    return {
        "padding": Setting("padding", _flat_pairs(axes), "padding"),
        "mode": constant(mode),
        "value": value or constant(0.0),
    }


REFLECTION = {
    "padding": Setting("padding", lambda pairs: tuple(map(tuple, pairs)), "padding"),
    "mode": constant("reflect"),
    "value": constant(0.0),
}
PADDED = Setting("value", float, "value")
_UPSAMPLED = {"linear": 1, "trilinear": 3}


def _sized(name: str) -> Callable[[Any], Any]:
    """Return a reader of an upsampling's size or scale, one for each axis; ``nearest`` is taken for 2-D."""

    def read(module: Any) -> Any:
        value = getattr(module, name)
        return None if value is None else _tuple(value, _UPSAMPLED.get(getattr(module, "mode", ""), 2))

    return read


def upsample(**settings: Setting) -> dict[str, Setting]:
    size, scale = (Setting(_sized(name), spelled=name) for name in ("size", "scale_factor"))
    return {"size": size, "scale": scale, **settings}


LRN = {
    "size": Setting(lambda m: 2 * m.lrn_op.depth_radius + 1, spelled="2 * depth_radius + 1"),
    # torch divides alpha by the size, MindSpore does not.
    "alpha": Setting(lambda m: m.lrn_op.alpha * (2 * m.lrn_op.depth_radius + 1), spelled="alpha * size"),
    "beta": Setting(lambda m: m.lrn_op.beta, spelled="beta"),
    "k": Setting(lambda m: m.lrn_op.bias, spelled="bias"),
}
ALIGNED = Setting("align_corners", bool, "align_corners")
NEAREST = upsample(mode=constant("nearest"), align_corners=constant(False))
BILINEAR = upsample(mode=constant("bilinear"), align_corners=constant(True))
GELU = {
    "approximate": Setting(lambda m: m.approximate == "tanh", lambda tanh: "tanh" if tanh else "none", "approximate")
}
