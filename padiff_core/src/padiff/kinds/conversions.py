"""Convert settings as frameworks spell them to the catalogue's convention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Pairs = tuple[tuple[Any, Any], ...]


def spread(value: Any, axes: int) -> tuple[Any, ...]:
    """Return one value for each axis: one stands for all, of more (batch, channels, space) the last ones count."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, tuple | list):
        return (value,) * axes
    return tuple(value) * axes if len(value) == 1 else tuple(value)[-axes:]


def each(axes: int) -> Callable[[Any], tuple[Any, ...]]:
    """Return a converter to one value for each axis."""
    return lambda value: spread(value, axes)


def around(value: Any, axes: int, data_format: Any = "NCHW") -> Any:
    """Return a padding as (before, after) pairs; one that has a name, such as ``same``, as that.

    It is given as one number, as one or two for each axis, as pairs, or as pairs of all axes with batch and channels.
    """
    if isinstance(value, str):
        return value.lower()
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, tuple | list) and isinstance(value[0], tuple | list):
        spatial = value[2:] if image_format(data_format) == "NCHW" else value[1:-1]
        return tuple(tuple(pair) for pair in (spatial if len(value) == axes + 2 else value))
    if isinstance(value, tuple | list) and len(value) == 2 * axes:
        return pairs(value, axes)
    return tuple((one, one) for one in spread(value, axes))


def pairs(value: Any, axes: int) -> Pairs:
    """Return (before, after) pairs from one number, or from before and after of each axis in turn."""
    flat = spread(value, 2 * axes)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def flat_pairs(axes: int) -> Callable[[Any], Pairs]:
    """Return a converter of a flat padding, last axis first, to pairs, first axis first."""
    return lambda value: pairs(value, axes)[::-1]


def image_format(value: Any) -> str:
    """Return NCHW for channels first in any number of axes, NHWC for channels last."""
    return "NHWC" if str(value).upper().endswith("C") else "NCHW"


def complement(value: Any) -> Any:
    """Return 1 - value, without the dust of the subtraction; None stays."""
    return None if value is None else round(1.0 - float(value), 12)


def function_name(value: Any) -> str:
    """Return the common name of an activation, given as a function, a module or a string."""
    if isinstance(value, str):
        return value
    name = str(getattr(value, "__name__", type(value).__name__)).lower()
    return f"{name}_tanh" if getattr(value, "approximate", "none") == "tanh" else name


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
