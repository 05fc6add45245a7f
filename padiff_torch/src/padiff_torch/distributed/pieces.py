"""Know what of a parameter lies on this rank: all of it, a shard of a DTensor, or a range of ZeRO-3's flat form.

Nothing here asks another rank.
"""

from __future__ import annotations

import math
from typing import Any


def is_partitioned(native: Any) -> bool:
    """Return whether ZeRO-3 holds a parameter: its own memory is empty but while a module uses it."""
    return hasattr(native, "ds_tensor") and hasattr(native, "ds_shape")


def _is_dtensor(native: Any) -> bool:
    return hasattr(native, "to_local") and hasattr(native, "placements")


def whole_shape(native: Any) -> tuple[int, ...]:
    """Return the shape that a parameter has over all ranks of its group."""
    return tuple(map(int, native.ds_shape if is_partitioned(native) else native.shape))


def is_whole(native: Any) -> bool:
    """Return whether all of a parameter lies on this rank."""
    return math.prod(piece_of(native).shape) == math.prod(whole_shape(native))


def piece_of(native: Any) -> Any:
    """Return the tensor in which this rank's part of a parameter lies; flat where it is a range of the flat form."""
    if _is_dtensor(native):
        return native.to_local()
    if not is_partitioned(native):
        return native
    kept, size = native.ds_tensor, math.prod(native.ds_shape)
    held = int(kept.numel())
    rank = getattr(native, "ds_process_group", None)
    first = 0 if rank is None else held * _rank_in(native)
    flat = kept.reshape(-1)[: max(0, min(held, size - first))]
    return flat.reshape(tuple(native.ds_shape)) if flat.numel() == size else flat


def _rank_in(native: Any) -> int:
    import torch.distributed as dist

    return int(dist.get_rank(native.ds_process_group)) if dist.is_initialized() else 0
