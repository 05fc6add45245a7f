"""Say how MindSpore's classes spell the catalogue's settings, where they do so otherwise than torch.

``pad_mode`` is read as what it really pads; the momentum of ``nn``'s running averages is 1 - torch's; pooling cells
hold their settings in the operation that they call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from padiff.adapter import Setting, conversions, spelling


def padded_axes(pairs: Any) -> tuple[tuple[int, int], ...]:
    """Return the pairs of all axes from the first padded one."""
    values = [tuple(pair) for pair in (pairs.tolist() if hasattr(pairs, "tolist") else pairs)]
    while values and values[0] == (0, 0):
        values.pop(0)
    return tuple(values)


def one_axis(axis: Any) -> int:
    """Return the axis of an operation that keeps it in a tuple."""
    (one,) = axis if isinstance(axis, tuple) else (axis,)
    return int(one)


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
            return conversions.pairs(flat(module), axes)
        if mode == "valid":
            return ((0, 0),) * axes
        sizes = None if transposed else _sizes.get(module)
        dilation = conversions.spread(getattr(module, "dilation", 1), axes)
        kernel, stride = conversions.spread(module.kernel_size, axes), conversions.spread(module.stride, axes)
        return conversions.same_padding(kernel, stride, dilation, None if sizes is None else sizes[-axes:])

    return Setting(lambda module: module.pad_mode.lower(), spelled="pad_mode", derive=pairs)


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


def conv(axes: int, *, transposed: bool = False) -> dict[str, Setting]:
    """Return the settings of ``nn``'s convolutions."""
    outer = Setting(lambda m: getattr(m, "output_padding", 0), conversions.each(axes), "output_padding")
    return {
        **spelling.shaped(axes, "stride", "dilation"),
        "padding": _pad_mode(axes, lambda m: m.padding, transposed=transposed),
        "padding_mode": spelling.constant("zeros"),
        **spelling.own(groups="group"),
        "data_format": Setting("data_format", conversions.image_format, "data_format"),
        **({"output_padding": outer} if transposed else {}),
    }


def _pool(axes: int) -> dict[str, Setting]:
    return {
        **spelling.shaped(axes, "kernel_size", "stride"),
        "padding": _pad_mode(axes, _pool_pads),
        "ceil_mode": Setting(_of_primitive("ceil_mode", False), bool, "ceil_mode"),
    }


def max_pool(axes: int) -> dict[str, Setting]:
    """Return the settings of ``nn``'s maximum poolings."""
    return {**_pool(axes), "dilation": Setting(_of_primitive("dilation", 1), conversions.each(axes), "dilation")}


def _counts_padding(module: Any) -> bool:
    """Return whether zeros of the padding count: with pad_mode="same" never."""
    return module.pad_mode.lower() != "same" and bool(getattr(_primitive(module), "count_include_pad", True))


def avg_pool(axes: int) -> dict[str, Setting]:
    """Return the settings of ``nn``'s average poolings."""
    return {
        **_pool(axes),
        "count_include_pad": Setting(_counts_padding, spelled="count_include_pad"),
        "divisor": Setting(_of_primitive("divisor_override", None), lambda value: value or None, "divisor_override"),
    }


def output_size(axes: int, read: str | Callable[[Any], Any] = "output_size") -> dict[str, Setting]:
    """Return the size of an adaptive pooling, where -1 stands for the input's own."""

    def sizes(value: Any) -> tuple[int | None, ...]:
        values = conversions.spread(value, axes)
        return tuple(None if one == -1 else one for one in values)

    return {"output_size": Setting(read, sizes, "output_size")}


BATCH = {
    **spelling.own("eps"),
    # The cell keeps 1 - what the user typed.
    "momentum": Setting(lambda m: conversions.complement(m.momentum), conversions.complement, "momentum"),
    "training": Setting(lambda m: m.training if m.use_batch_statistics is None else m.use_batch_statistics, bool),
    "track": spelling.constant(True),
}


def within(child: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return settings that stand at a child."""

    def read(setting: Setting) -> Callable[[Any], Any]:
        return lambda module: setting.native(getattr(module, child))

    return {name: attrs.evolve(setting, read=read(setting)) for name, setting in settings.items()}


LINEAR = {
    "fused": Setting("activation", lambda one: None if one is None else conversions.function_name(one), "activation")
}
RNN = {
    **spelling.RECURRENT,
    "activation": Setting(
        lambda m: "relu" if type(m.rnn).__name__.endswith("Relu") else "tanh", spelled="nonlinearity"
    ),
}


def _normalized(module: Any) -> tuple[int, ...]:
    """Return the axes that are normalised: from begin_norm_axis, which need not be all that the weight has."""
    shape, begin = tuple(module.normalized_shape), module.begin_norm_axis
    return shape[begin:] if begin < 0 else shape


LAYER_NORM = {**spelling.own(eps="epsilon"), "normalized_shape": Setting(_normalized, spelled="normalized_shape")}


KEPT = Setting(lambda m: conversions.complement(m.keep_prob), spelled="p")
KEPT_OR_DROPPED = Setting(lambda m: conversions.complement(m.keep_prob) if m.p is None else m.p, float, "p")


REFLECTION = {
    "padding": Setting("padding", lambda pairs: tuple(map(tuple, pairs)), "padding"),
    "mode": spelling.constant("reflect"),
    "value": spelling.constant(0.0),
}
LRN = {
    "size": Setting(lambda m: 2 * m.lrn_op.depth_radius + 1, spelled="2 * depth_radius + 1"),
    # torch divides alpha by the size, MindSpore does not.
    "alpha": Setting(lambda m: m.lrn_op.alpha * (2 * m.lrn_op.depth_radius + 1), spelled="alpha * size"),
    "beta": Setting(lambda m: m.lrn_op.beta, spelled="beta"),
    "k": Setting(lambda m: m.lrn_op.bias, spelled="bias"),
}
GELU = {
    "approximate": Setting(lambda m: m.approximate == "tanh", lambda tanh: "tanh" if tanh else "none", "approximate")
}
