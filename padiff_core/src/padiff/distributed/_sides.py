"""Give the rank of a job its parts of whole parameters, wherever these come from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from padiff.distributed._grid import grid_of
from padiff.distributed._placements import is_part_of
from padiff.distributed._whole import whole_model
from padiff.errors import InputError
from padiff.forcing import Side
from padiff.kinds import Placement, Ranks
from padiff.numerics import Array
from padiff.recording import Cuts, Orders
from padiff.trace import Description, cut_description

Shape = tuple[int, ...]


class PartSide:
    """A live model of which this rank holds parts, as whoever writes whole parameters sees it.

    Of a vocabulary that is filled up those rows are seen that the ``cuts`` read; the others stay.
    """

    def __init__(self, side: Side, ranks: Ranks, cuts: Cuts | None = None) -> None:
        self._side, self._ranks, self._cuts = side, ranks, cuts or {}
        self._whole = whole_model(side.about, ranks)
        self.about: Description = cut_description(self._whole, self._cuts)

    def permuted(self, _: Orders, cuts: Cuts) -> PartSide:
        """Return the model with some rows of some parameters."""
        return PartSide(self._side, self._ranks, cuts)

    def native(self, path: str) -> Any | None:
        """Return the live module of a path."""
        return self._side.native(path)

    def find(self, native: Any) -> str | None:
        """Return the path of a live object that is one of the model's modules."""
        return self._side.find(native)

    def value(self, path: str) -> Array:
        """Return a whole parameter, of which what other ranks hold is zero."""
        cut, whole = self._cuts.get(path), self._filled(path)
        return whole if cut is None else np.ascontiguousarray(cut.read(whole))

    def _filled(self, path: str) -> Array:
        own = self._side.value(path)
        whole: Array = np.zeros(self._whole.parameters[path].shape, own.dtype)
        numbers = np.arange(whole.size).reshape(whole.shape)
        whole.reshape(-1)[part_of(numbers, path, self._ranks, own.shape)] = own
        return whole

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite this rank's parts of parameters."""
        local, whole = self._side.about.parameters, dict(arrays)
        for path in arrays.keys() & self._cuts.keys():
            whole[path] = self._filled(path)
            self._cuts[path].read(whole[path])[...] = arrays[path]
        self._side.assign({path: part_of(one, path, self._ranks, local[path].shape) for path, one in whole.items()})

    def require_placed(self, left: Collection[str], shapes: Mapping[str, Shape]) -> None:
        """Raise `InputError` for a parameter that nothing matches, where it looks like a part of one of the source's.

        ``left`` are the paths of those, ``shapes`` what the source holds that nothing here matches.
        """
        for path in left:
            own, said = self._whole.parameters[path].shape, self._ranks.parameters.get(path, {})
            whole = next((one for one in shapes.items() if is_part_of(own, one[1])), None)
            if whole is not None and not all(axis in said for axis in self._ranks.groups):
                msg = f"rank {self._ranks.rank} of {self._ranks.world} holds {list(own)} of {path!r}, and the source "
                msg += f"{list(whole[1])} of {whole[0]!r}: nothing says which part of it lies here.\n{_HINT}"
                raise InputError(msg)


def part_of(whole: Array, path: str, ranks: Ranks, shape: Shape) -> Array:
    """Return the part of a whole parameter that lies on a rank; ``shape`` is that of what lies there.

    Raises `InputError` where its placements give another shape.
    """
    spread = ranks.parameters.get(path, {})
    part = whole
    for axis in reversed(grid_of({ranks.rank: ranks}).axes):
        group = ranks.groups[axis]
        part = spread.get(axis, Placement()).part(part, len(group), group.index(ranks.rank))
    if part.shape != shape:
        told = ", ".join(f"{axis}: {how}" for axis, how in spread.items()) or "nothing says how it is spread"
        msg = f"rank {ranks.rank} of {ranks.world} holds {list(shape)} of {path!r}, and its part of "
        msg += f"{list(whole.shape)} would be {list(part.shape)} ({told}).\n"
        raise InputError(msg + _HINT)
    return part


_HINT = "Hint: shard it with DTensor, or set tensor_model_parallel and partition_dim on the parameter."
