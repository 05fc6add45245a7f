"""Say of a value that is wrong which reduction over the ranks, or which ranks, explain it.

Each hypothesis is held against the values: what would be right were it true is the other side's value, but for
rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from padiff.alignment import orders_between
from padiff.distributed._expected import Expected, Near
from padiff.distributed._grid import Grid
from padiff.distributed._infer import differing, merged
from padiff.distributed._merged_step import Parts
from padiff.kinds import Placement
from padiff.numerics import Array, difference
from padiff.report import Cause


def cause_of(
    parts: Parts, expected: Expected, beside: Mapping[str, Array] | None = None, given: Sequence[Array | None] = ()
) -> Cause | None:
    """Return what the parts on the ranks tell of a value that is not the other side's.

    ``beside`` are the parameters of the module that gave it, by their names, ``given`` what it was given.
    """
    whole, grid = other_value(parts, expected), parts.grid
    if whole is None:
        return None
    held = _Held(parts, parts.read(), expected, whole, beside or {}, given)
    if held.value(held.how).shape != whole.shape:
        return None  # the other side has no rows that pad a vocabulary
    for axis, placement in held.how.items():
        group = grid.groups(list(held.arrays), axis)[0]
        if len(group) > 1:
            unlike = bool(differing(held.arrays, grid, axis))
            for rule in _UNLIKE if placement.kind == "replicate" and unlike else _ALIKE.get(placement.kind, ()):
                found = rule(held, axis, group)
                if found is not None:
                    return found
    wrong = _wrong(held)
    right = [rank for rank in sorted(held.arrays) if rank not in wrong]
    if wrong and right:
        nothing = not any(held.arrays[rank].any() for rank in wrong)
        return Cause(
            "nothing_on_ranks" if nothing else "wrong_on_ranks", {"ranks": wrong, "right": right}, verified=True
        )
    return None


@attrs.frozen(eq=False)
class _Held:
    """What the ranks hold, and what it should be."""

    parts: Parts
    arrays: Mapping[int, Array]
    expected: Expected
    whole: Array
    beside: Mapping[str, Array]
    """The parameters of the module that gave it, by their names."""
    given: Sequence[Array | None]
    """What the call was given that made it."""

    @property
    def how(self) -> Mapping[str, Placement]:
        """Return how it is spread."""
        return self.parts.spreading.placements

    @property
    def grid(self) -> Grid:
        """Return where the ranks stand."""
        return self.parts.grid

    def share(self, rank: int) -> Array | None:
        """Return what of the value one rank should hold; None where that cannot be told."""
        return self.parts.share(rank, self.arrays, self.whole)

    def bare(self, value: Array) -> Array:
        """Return a value without what counts once, however often the parts are summed."""
        return value if self.parts.added is None else value - self.parts.added

    def vectors(self, value: Array) -> dict[str, Array]:
        """Return the parameters of the module, by their names, that may be added to the rows of a value."""
        shape = value.shape[-1:] if value.shape == self.whole.shape else None
        return {name: one for name, one in self.beside.items() if one.ndim == 1 and one.shape == shape and one.any()}

    def value(self, how: Mapping[str, Placement]) -> Array:
        """Return the whole value, were it spread so."""
        return merged(self.arrays, self.grid, how, self.parts.whole, self.parts.added)

    def fits(self, how: Mapping[str, Placement], *, times: float = 1.0) -> bool:
        """Return whether it is what it should be, were it spread so, and ``times`` as much."""
        value = self.value(how)
        once = 0 if self.parts.added is None else self.parts.added
        near = self.expected.nearest(value if times == 1.0 else self.bare(value) * times + once)
        return near is not None and near.same


def _unsummed(held: _Held, axis: str, group: Sequence[int]) -> Cause | None:
    for mean in (False, True):
        how = {**held.how, axis: Placement("partial", mean=mean)}
        # What each rank added is in a sum as often as there are ranks.
        if held.fits(how) or (not mean and _added(held, held.value(how), len(group))):
            told: dict[str, Any] = {"ranks": list(group)} | ({"mean": True} if mean else {})
            return Cause("missing_all_reduce", told, verified=True)
    return None


def _other_group(held: _Held, axis: str, group: Sequence[int]) -> Cause | None:
    """Find a sum over ranks that have other data, in place of those that have the other parts."""
    for other, placement in held.how.items():
        if other == axis or placement.kind != "shard" or differing(held.arrays, held.grid, other):
            continue
        mixed = held.value({**held.how, axis: Placement("partial"), other: Placement()})
        count = held.grid.size(other)
        if held.whole.shape[placement.dim] % count == 0:
            sums = sum(np.split(held.bare(held.whole), count, placement.dim))
            if is_same(np.asarray(sums), held.bare(mixed)):
                with_others = held.grid.groups(list(held.arrays), other)[0]
                return Cause("wrong_group", {"ranks": with_others, "right": list(group)}, verified=True)
    return None


def _multiple(held: _Held, _: str, group: Sequence[int]) -> Cause | None:
    size, value = len(group), held.value(held.how)
    for times, name in ((1 / size, "reduced_twice"), (float(size), "averaged")):
        if held.fits(held.how, times=times) or any(
            is_same(held.whole, ((value - added) * times + added).astype(value.dtype))
            for added in held.vectors(value).values()
        ):  # a bias that is added behind the sum counts once
            return Cause(name, {"ranks": list(group), "times": size}, verified=True)
    return None


def _added_by_each(held: _Held, _: str, group: Sequence[int]) -> Cause | None:
    """Find a parameter that each rank added before the sum."""
    name = _added(held, held.value(held.how), len(group))
    return None if name is None else Cause("added_by_each", {"name": name, "ranks": list(group)}, verified=True)


def _looked_up_by_each(held: _Held, _: str, group: Sequence[int]) -> Cause | None:
    """Find a table of which each rank adds a row for each token, those among them that it does not hold."""
    tokens = next((one for one in held.given if one is not None and one.dtype.kind in "iu" and one.size), None)
    value, count = held.value(held.how), len(group)
    if tokens is None or tokens.min() < 0:
        return None
    for table in held.beside.values():
        size, rest = divmod(len(table), count)
        if rest or table.ndim != value.ndim - tokens.ndim + 1 or tokens.max() >= len(table):
            continue
        firsts = (np.arange(count) * size).reshape(-1, *(1,) * tokens.ndim)
        for local in (tokens % size, np.zeros_like(tokens), np.clip(tokens - firsts, 0, size - 1)):
            rows = np.where(tokens // size == firsts // size, tokens, local + firsts)
            total = table[rows].sum(0, dtype=table.dtype)
            if any(is_same(total.transpose(order), value) for order in orders_between(value.shape, total.shape)):
                return Cause("looked_up_by_each", {"ranks": list(group)}, verified=True)
    return None


def _gathered_logits(held: _Held, _: str, group: Sequence[int]) -> Cause | None:
    """Find losses of tokens for which each rank adds up what all give: apart by the logarithm of how many they are."""
    value = held.value(held.how)
    right = value.dtype.kind == "f" and is_same(held.whole, value - np.asarray(np.log(len(group)), value.dtype))
    return Cause("logits_gathered", {"ranks": list(group)}, verified=True) if right else None


def _added(held: _Held, value: Array, count: int) -> str | None:
    """Return the parameter without which, but for once, a value is right."""
    for name, added in held.vectors(value).items():
        if is_same(held.whole, value - np.asarray(count - 1, added.dtype) * added):
            return name
    return None


def _gathered_order(held: _Held, _: str, group: Sequence[int]) -> Cause | None:
    """Find parts that were put together in another order."""
    value = held.value(held.how)
    if value.shape != held.whole.shape:
        return None
    for dim in range(value.ndim):
        if value.shape[dim] % len(group) == 0:
            order = _order(np.split(value, len(group), dim), np.split(held.whole, len(group), dim))
            if order is not None:
                found = {"ranks": list(group), "order": [group[index] for index in order]}
                return Cause("gathered_order", found, verified=True)
    return None


def _chunks_in_order(held: _Held, axis: str, group: Sequence[int]) -> Cause | None:
    """Find one part on each rank, where it should hold a part from each end; or the reverse."""
    how = held.how[axis]
    other = {**held.how, axis: attrs.evolve(how, ends=not how.ends)}
    if not any(one.ends for one in held.how.values()) or not held.fits(other):
        return None
    return Cause("chunk_order", {"ranks": list(group), "ends": how.ends}, verified=True)


def _shard_order(held: _Held, axis: str, group: Sequence[int]) -> Cause | None:
    shares = [share for share in map(held.share, group) if share is not None]
    order = _order([held.arrays[rank] for rank in group], shares) if len(shares) == len(group) else None
    if order is None:
        return None
    found = {"ranks": list(group), "order": [group[index] for index in order]}
    return Cause("shard_order", found, verified=True)


def _reordered(held: _Held, axis: str, group: Sequence[int]) -> Cause | None:
    """Find shards that hold what they should, row by row, in another order."""
    dim, moved = held.how[axis].dim, False
    for rank in held.arrays:
        share, own = held.share(rank), held.arrays[rank]
        if share is None or share.shape != own.shape or share.dtype != own.dtype or not own.size:
            return None
        if not np.array_equal(_rows(share, dim), _rows(own, dim)):
            return None
        moved = moved or not np.array_equal(share, own)
    return (
        Cause("reordered", {"ranks": sorted(held.arrays), "dim": dim % held.whole.ndim}, verified=True)
        if moved
        else None
    )


_UNLIKE = (_unsummed, _other_group)
_ALIKE = {
    "replicate": (_multiple, _added_by_each, _gathered_order, _looked_up_by_each, _gathered_logits),
    "shard": (_chunks_in_order, _shard_order, _reordered),
}
"""Kind of placement -> what may be wrong where the ranks hold what such a placement lets them hold."""


def _order(parts: Sequence[Array], right: Sequence[Array]) -> list[int] | None:
    """Return in which order the parts are right; None where they are in none but their own."""
    left = list(range(len(parts)))
    order = []
    for one in right:
        found = next((i for i in left if is_same(one, parts[i])), None)
        if found is None:
            return None
        left.remove(found)
        order.append(found)
    return None if order == sorted(order) else order


def _rows(array: Array, dim: int) -> Array:
    """Return the bytes of an array's slices along a dimension, sorted."""
    rows = np.ascontiguousarray(np.moveaxis(array, dim, 0))
    flat = rows.reshape(len(rows), -1).view(np.uint8)
    return np.sort(flat.view(f"S{flat.shape[1]}").reshape(-1))


def _wrong(held: _Held) -> list[int]:
    """Return the ranks that hold something else than their share; none of which that cannot be told."""
    shares = ((rank, held.share(rank), own) for rank, own in sorted(held.arrays.items()))
    return [rank for rank, share, own in shares if share is not None and not is_same(share, own)]


def loss_of_each(parts: Parts, expected: Expected) -> Cause | None:
    """Return that each rank's loss sends a multiple of its own of what the other side's sends there, where it is so."""
    ours, whole = parts.value(), other_value(parts, expected)
    if whole is None or ours.shape != whole.shape:
        return None
    shares, times = parts.shares(ours), {}
    for rank, right in parts.shares(whole).items():
        own = shares[rank]
        if right is None or own is None or not right.any():
            return None
        times[rank] = float((own * right).sum()) / float((right * right).sum())
        if not is_same(right * times[rank], own):
            return None
    shown = [float(f"{one:.4g}") for one in times.values()]
    if len(set(shown)) == 1:
        return None
    return Cause("loss_of_each_rank", {"ranks": list(times), "times": shown}, verified=True)


def normalized_by_each(parts: Parts, expected: Expected) -> Cause | None:
    """Return that each rank normalizes by statistics of its own, where it is so.

    What it gives is the other side's part then, but for a factor and an offset of each channel: on each rank others.
    """
    whole, arrays = other_value(parts, expected), parts.read()
    shares = {} if whole is None else parts.shares(whole)
    for axis in (1, -1):
        found = [_affine(share, arrays[rank], axis) for rank, share in shares.items()]
        known = [one for one in found if one is not None]
        if known and len(known) == len(found) and not all(is_same(known[0], one) for one in known[1:]):
            return Cause("normalized_by_each", {"ranks": sorted(arrays)}, verified=True)
    return None


def _affine(share: Array | None, own: Array, axis: int) -> Array | None:
    """Return the factor and the offset of each channel that make a value of another; None where none do."""
    if share is None or share.shape != own.shape or own.ndim < 2:
        return None
    given, made = (np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1).astype(np.float64) for one in (share, own))
    mean = given.mean(1, keepdims=True)
    squares = np.square(given - mean).sum(1, keepdims=True)
    factor = ((given - mean) * made).sum(1, keepdims=True) / np.where(squares, squares, 1)
    offset = made.mean(1, keepdims=True) - factor * mean
    right = is_same((factor * given + offset).astype(own.dtype), made.astype(own.dtype))
    return np.concatenate([factor, offset]).astype(own.dtype) if right else None


def other_value(parts: Parts, expected: Expected | None) -> Array | None:
    """Return what the other side holds in place of a value, with its axes as they lie here; None where nothing."""
    near = None if expected is None else expected.nearest(parts.value())
    return None if near is None else near.value


def is_same(one: Array, other: Array) -> bool:
    """Return whether two values are of one shape, and differ by no more than rounding."""
    return Near(difference(one, other).rel_l2, one).same
