"""Know what of a parameter lies on this rank: all of it, a shard of a DTensor, or a range of a flat form.

Such ranges hold ZeRO-3, of each parameter by itself, and FSDP1, of all parameters of a unit one behind the other.

Nothing here asks another rank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any


class FlatPart:
    """A parameter that `FullyShardedDataParallel` made a part of a flat one, and that part's range on this rank.

    To padiff it is a native tensor: it has what is asked of one, and gives hooks its part of the flat one's gradient.
    """

    is_leaf, is_meta, _base = True, False, None

    def __init__(self, unit: Any, index: int) -> None:
        self.handle, self.index = unit._handle, index
        self.flat = self.handle.flat_param
        self.whole = tuple(self.flat._shapes[index])
        sizes = zip(self.flat._numels_with_padding, self.flat._is_padding_mask, strict=True)
        starts = itertools.accumulate((size for size, _ in sizes), initial=0)
        real = (start for start, padded in zip(starts, self.flat._is_padding_mask, strict=False) if not padded)
        self.start = next(itertools.islice(real, index, None))
        self.copies = getattr(unit, "_inter_node_pg", None)
        """The group of ranks that hold the same range."""

    @property
    def held(self) -> Any:
        """Return what optimizers are given: the parameter itself, or the flat one."""
        own = self.flat._params
        return self.flat if own is None else own[self.index]

    @property
    def sharded(self) -> bool:
        """Return whether other ranks hold the rest of it."""
        return bool(self.handle.uses_sharded_strategy)

    @property
    def device(self) -> Any:
        """Return where it is kept."""
        return self._kept().device

    @property
    def requires_grad(self) -> bool:
        """Return whether it is trained."""
        return bool(self.held.requires_grad)

    @property
    def grad(self) -> Any:
        """Return what lies here of its gradient; None where there is none."""
        found = self.held.grad
        return None if found is None else self.share(found)

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Let a hook see its gradient, of this rank's own data: before ranks put theirs together."""
        end = self.start + math.prod(self.whole)

        def arrived(gradient: Any) -> None:
            if gradient is not None:
                hook(gradient[self.start : end].view(self.whole))

        return self.flat.register_hook(arrived)

    def piece(self) -> Any:
        """Return the tensor in which this rank's part lies: flat, where it is not all of it."""
        found = self._within(self._kept().detach())
        return found.view(self.whole) if found.numel() == math.prod(self.whole) else found

    def share(self, gradient: Any) -> Any:
        """Return what this rank's part has of a gradient of what optimizers are given."""
        return gradient if self.flat._params is not None else self._within(gradient)

    def _kept(self) -> Any:
        return getattr(self.flat, "_local_shard", self.flat)

    def _within(self, flat: Any) -> Any:
        here = self.flat._shard_param_infos[self.index]
        first = here.offset_in_shard if here.in_shard else 0
        return flat.reshape(-1)[first : first + here.numel_in_shard] if here.in_shard else flat.reshape(-1)[:0]


def is_partitioned(native: Any) -> bool:
    """Return whether ZeRO-3 holds a parameter: its own memory is empty but while a module uses it."""
    return hasattr(native, "ds_tensor") and hasattr(native, "ds_shape")


def is_range(native: Any) -> bool:
    """Return whether ranks hold ranges of a parameter's flat form."""
    return native.sharded if isinstance(native, FlatPart) else is_partitioned(native)


def is_dtensor(native: Any) -> bool:
    """Return whether a parameter is a DTensor, as `fully_shard` leaves it."""
    return hasattr(native, "to_local") and hasattr(native, "placements")


def whole_shape(native: Any) -> tuple[int, ...]:
    """Return the shape that a parameter has over all ranks of its group."""
    if isinstance(native, FlatPart):
        return native.whole
    return tuple(map(int, native.ds_shape if is_partitioned(native) else native.shape))


def is_whole(native: Any) -> bool:
    """Return whether all of a parameter lies on this rank."""
    return math.prod(piece_of(native).shape) == math.prod(whole_shape(native))


def piece_of(native: Any) -> Any:
    """Return the tensor in which this rank's part of a parameter lies; flat where it is a range of the flat form."""
    if is_dtensor(native):
        return native.to_local()
    if isinstance(native, FlatPart):
        return native.piece()
    if not is_partitioned(native):
        return native
    kept, size = native.ds_tensor, math.prod(native.ds_shape)
    held = int(kept.numel())
    flat = kept.reshape(-1)[: max(0, min(held, size - start_of(native)))]
    return flat.reshape(tuple(native.ds_shape)) if flat.numel() == size else flat


def start_of(native: Any) -> int:
    """Return how many elements of a parameter lie in front of this rank's range of its flat form."""
    if isinstance(native, FlatPart):
        return int(native.flat._shard_param_infos[native.index].intra_param_start_idx or 0)
    group = getattr(native, "ds_process_group", None)
    return 0 if group is None else int(native.ds_tensor.numel()) * _rank_in(native)


def _rank_in(native: Any) -> int:
    import torch.distributed as dist

    return int(dist.get_rank(native.ds_process_group)) if dist.is_initialized() else 0
