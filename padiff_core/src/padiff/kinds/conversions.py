"""Convert settings as frameworks spell them to the catalogue's convention."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["same_padding"]


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
