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
from padiff.parameters import PaddedRows
from padiff.trace import Description

Shape = tuple[int, ...]


class _Around:
    """A live model whose parameters are seen otherwise than they lie; its modules are the same ones."""

    def __init__(self, inner: Side | PartSide) -> None:
        self.inner = inner

    def native(self, path: str) -> Any | None:
        """Return the live module of a path."""
        return self.inner.native(path)

    def find(self, native: Any) -> str | None:
        """Return the path of a live object that is one of the model's modules."""
        return self.inner.find(native)


class PartSide(_Around):
    """A live model of which this rank holds parts, as whoever writes whole parameters sees it."""

    def __init__(self, side: Side, ranks: Ranks) -> None:
        super().__init__(side)
        self._ranks = ranks
        self.about: Description = whole_model(side.about, ranks)

    def value(self, path: str) -> Array:
        """Return a whole parameter, of which what other ranks hold is zero."""
        own = self.inner.value(path)
        whole: Array = np.zeros(self.about.parameters[path].shape, own.dtype)
        numbers = np.arange(whole.size).reshape(whole.shape)
        whole.reshape(-1)[part_of(numbers, path, self._ranks, own.shape)] = own
        return whole

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite this rank's parts of parameters."""
        local = self.inner.about.parameters
        parts = {path: part_of(array, path, self._ranks, local[path].shape) for path, array in arrays.items()}
        self.inner.assign(parts)

    def require_placed(self, left: Collection[str], shapes: Mapping[str, Shape]) -> None:
        """Raise `InputError` for a parameter that nothing matches, where it looks like a part of one of the source's.

        ``left`` are the paths of those, ``shapes`` what the source holds that nothing here matches.
        """
        for path in left:
            own, said = self.about.parameters[path].shape, self._ranks.parameters.get(path, {})
            whole = next((one for one in shapes.items() if is_part_of(own, one[1])), None)
            if whole is not None and not all(axis in said for axis in self._ranks.groups):
                msg = f"rank {self._ranks.rank} of {self._ranks.world} holds {list(own)} of {path!r}, and the source "
                msg += f"{list(whole[1])} of {whole[0]!r}: nothing says which part of it lies here.\n{_HINT}"
                raise InputError(msg)


class PaddedSide(_Around):
    """A live model that fills its vocabulary up, as whoever writes the real rows sees it; the others stay."""

    def __init__(self, side: Side | PartSide, rows: PaddedRows) -> None:
        super().__init__(side)
        self._rows = rows
        self.about: Description = rows.about(side.about)

    def value(self, path: str) -> Array:
        """Return the real rows of a parameter."""
        cut, whole = self._rows.parameters.get(path), self.inner.value(path)
        return whole if cut is None else np.ascontiguousarray(cut.read(whole))

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Overwrite the real rows of parameters."""
        whole = dict(arrays)
        for path in arrays.keys() & self._rows.parameters.keys():
            whole[path] = np.array(self.inner.value(path))
            self._rows.parameters[path].read(whole[path])[...] = arrays[path]
        self.inner.assign(whole)


def part_side(side: object) -> PartSide | None:
    """Return the side of which only a part lies on this rank, padded or not; None where all of it does."""
    inner = side.inner if isinstance(side, PaddedSide) else side
    return inner if isinstance(inner, PartSide) else None


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
