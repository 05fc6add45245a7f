"""Put the parts of a value together that lie on the ranks of one group."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence

import numpy as np

from padiff.distributed._grid import Grid
from padiff.kinds import Placement
from padiff.numerics import Array

Shape = tuple[int, ...]

REPLICATE = Placement()


def joined(
    parts: Sequence[Array],
    placement: Placement,
    whole: Shape | None = None,
    added: Array | None = None,
    count: int | None = None,
) -> Array:
    """Return a value, of which each rank of a group holds a part, in the order of the group: see `Placement.part`.

    Of flat ranges ``whole`` is the value's shape. What was ``added`` to each part of a sum counts once. A mean is over
    ``count``, where not all ranks of the group have a part. Raises ``ValueError`` where the parts do not fit.
    """
    count = len(parts) if count is None else count
    if placement.kind == "replicate" or (len(parts) == 1 and placement.kind != "range"):
        return _scaled(parts[0], count) if placement.mean else parts[0]
    if placement.kind == "partial":
        bare = [parts[0], *(parts[1:] if added is None else (part - added for part in parts[1:]))]
        total: Array = functools.reduce(operator.add, bare)
        return _scaled(total, count) if placement.mean else total
    if placement.kind == "sums":
        shards = len(parts) // placement.copies
        return np.concatenate([functools.reduce(operator.add, parts[n::shards]) for n in range(shards)], placement.dim)
    if placement.kind == "range":
        flat: Array = np.concatenate([part.reshape(-1) for part in parts])
        return flat if whole is None else flat.reshape(whole)
    sides = 2 if placement.ends else 1
    blocks = [np.split(part, placement.blocks, placement.dim) for part in parts]
    runs = (_in_order([one[index : index + sides] for one in blocks]) for index in range(0, len(blocks[0]), sides))
    whole_value: Array = np.concatenate([block for run in runs for block in run], placement.dim)
    return _scaled(whole_value, count) if placement.mean else whole_value


def _in_order(held: Sequence[Sequence[Array]]) -> list[Array]:
    """Return what ranks hold from the front, or from both ends, in the order of the whole."""
    return [*(one[0] for one in held), *(back for one in reversed(held) for back in one[1:])]


def _scaled(array: Array, count: int) -> Array:
    if count == 1:
        return array
    scaled: Array = (array / np.asarray(count, array.dtype)).astype(array.dtype, copy=False)
    return scaled


def is_part_of(own: Shape, whole: Shape) -> bool:
    """Return whether a shape is that of a shard of another: along some dimension, a whole number of times."""
    fits = len(own) == len(whole) and all(a and b % a == 0 for a, b in zip(own, whole, strict=True))
    return fits and own != whole


def joined_shape(shapes: Sequence[Shape], placement: Placement) -> Shape | None:
    """Return the shape of what `joined` returns, None where the parts do not fit; of flat ranges, one axis."""
    if placement.kind == "range":
        return (sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes),)
    if placement.kind == "sums":
        rows = len(shapes) // placement.copies
        alike = all(len(set(shapes[n::rows])) == 1 for n in range(rows))
        return joined_shape(shapes[:rows], Placement("shard", placement.dim)) if alike else None
    if placement.kind != "shard":
        return shapes[0] if len(set(shapes)) == 1 else None
    rank = len(shapes[0])
    if not -rank <= placement.dim < rank or any(len(shape) != rank for shape in shapes):
        return None
    dim = placement.dim % rank
    if len({shape[:dim] + shape[dim + 1 :] for shape in shapes}) > 1:
        return None
    if any(shape[dim] % placement.blocks for shape in shapes):
        return None
    if placement.ends and len(set(shapes)) > 1:
        return None
    return (*shapes[0][:dim], sum(shape[dim] for shape in shapes), *shapes[0][dim + 1 :])


def share_of(
    rank: int, arrays: Mapping[int, Array], how: Mapping[str, Placement], grid: Grid, whole: Array
) -> Array | None:
    """Return what of a whole one rank should hold; None where a sum, or a flat range, does not tell."""
    part = whole
    for axis in reversed(grid.axes):
        placement = how.get(axis, REPLICATE)
        if placement.kind == "shard":
            group = next(group for group in grid.groups(list(arrays), axis) if rank in group)
            if not -part.ndim <= placement.dim < part.ndim:
                return None
            sizes = [arrays[one].shape[placement.dim] for one in group]
            if placement.blocks == 1 and sum(sizes) == part.shape[placement.dim]:
                part = np.split(part, np.cumsum(sizes)[:-1], placement.dim)[group.index(rank)]
            elif part.shape[placement.dim] % (len(group) * placement.blocks):
                return None
            else:
                part = placement.part(part, len(group), group.index(rank))
        elif placement.kind != "replicate":
            return None
    return part
