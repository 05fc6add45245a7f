"""Sketch what a process holds of a model's values: in the layout of its kind, and at its place in the whole value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.adapter import Reduction
from padiff.kinds import Part, Placement, Ranks, Spread, parts_of_data, unreduced
from padiff.numerics import Array, sketch
from padiff.trace import Description, Leaf, Summary, layouts_of, summarized

Shape = tuple[int, ...]


@attrs.frozen(eq=False)
class Where:
    """How the canonical value lies in a native one, and which places of the whole value this process holds."""

    part: Part | None = None
    shards: tuple[tuple[Placement, int, int], ...] = ()
    """Innermost first: how it is sharded along a group, this rank's position in that, and how many ranks it has."""
    range: tuple[int, Shape] | None = None
    """Where a range of its elements starts, laid out flat, and the shape of the whole."""

    def sketched(self, array: Array) -> Summary:
        """Return the summary of a native array, with its sketch."""
        if not self.shards:
            value = array if self.part is None else self.part.read(array)
            return attrs.evolve(summarized(value, extremes=False, sketched=True), shape=tuple(array.shape))
        found = summarized(array, extremes=False)
        if self.range is not None and (self.part is None or self.part.transpose is None):
            start, shape = self.range
            mine = sketch(array.reshape(-1), [np.arange(start, start + array.size)], [math.prod(shape)])
            return attrs.evolve(found, norm=found.norm or 0.0, sketch=mine, whole=shape)
        places = self._places(tuple(array.shape))
        if places is None:
            return found
        whole, indices = places
        order = None if self.part is None else self.part.transpose
        axes = range(array.ndim) if order is None else order
        mine = sketch(array.transpose(axes), [indices[axis] for axis in axes], [whole[axis] for axis in axes])
        return attrs.evolve(found, sketch=mine, whole=whole)

    @property
    def reduction(self) -> Reduction | None:
        """Return what has to be asked of a native value, to be sketched where it lies; None where that is done here."""
        if self.shards or not (self.part is None or self.part.permuted):
            return None
        return Reduction(extremes=False, sketched=True, order=None if self.part is None else self.part.transpose)

    def _places(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], list[NDArray[np.int64]]] | None:
        """Return the whole's shape, and along each axis which places are here; None where that cannot be told.

        All shards are taken to have one size: whoever merges them sees whether it is so.
        """
        if self.part is not None and not self.part.permuted:
            return None
        whole = list(shape)
        indices = [np.arange(extent) for extent in shape]
        for how, position, count in self.shards if shape else ():
            if how.kind != "shard" or not -len(shape) <= how.dim < len(shape) or whole[how.dim] % how.blocks:
                return None
            whole[how.dim] *= count
            here = attrs.evolve(how, dim=0).part(np.arange(whole[how.dim]), count, position)
            indices[how.dim] = here[indices[how.dim]]
        return tuple(whole), indices


class Places:
    """What knows where the values of a model lie in the whole ones."""

    def __init__(self, about: Description) -> None:
        self._layouts = layouts_of(about)
        self._ranks = about.ranks
        self._shapes = {path: one.shape for path, one in about.parameters.items()}
        self._known: dict[str, Where] = {}
        self._given: Leaf | None = None

    def of_parameter(self, path: str) -> Where:
        """Return where a parameter, or its gradient, lies."""
        if path not in self._known:
            spread = {} if self._ranks is None else self._ranks.parameters.get(path, {})
            shards = _shards(self._ranks, spread)
            start = None if self._ranks is None else self._ranks.starts.get(path)
            whole = () if self._ranks is None else self._ranks.shapes.get(path, self._shapes.get(path, ()))
            ranged = [how.kind for how, *_ in shards] == ["range"]
            held = (start, whole) if start is not None and ranged else None
            self._known[path] = Where(self._layouts.get(path), shards, held)
        return self._known[path]

    def of_gradient(self, path: str, shape: Shape, own: Shape) -> Where:
        """Return where a gradient of a parameter lies, which may come before the ranks that share data reduce it.

        Then it is of another shape than the shard of the parameter, which is its ``own``, or this is all of it: one
        rank may hold the only range that is not empty.
        """
        where = self.of_parameter(path)
        whole = own if self._ranks is None else self._ranks.shapes.get(path, own)
        if self._ranks is None or shape == own != whole:
            return where
        spread = unreduced(self._ranks.parameters.get(path, {}), shape, whole)
        return attrs.evolve(where, shards=_shards(self._ranks, spread), range=None)

    def begin(self) -> None:
        """Forget what the model was given: it is called anew."""
        self._given = None

    def given(self, leaf: Leaf) -> None:
        """Learn from what the model is given how long its batch and its sequences are: from tokens, where there are."""
        if self._given is None or (_is_tokens(leaf) and not _is_tokens(self._given)):
            self._given = leaf

    def of_value(self, shape: tuple[int, ...], path: str | None = None) -> Where:
        """Return where the first output of a module lies; without a path, any value of a shape that calls take or give.

        Where nobody says it, ranks that have data of their own are taken to have parts of one batch, and those that
        share sequences a part from both ends: along the first axis that is as long as what the model is given.
        """
        if self._ranks is None:
            return Where()
        declared = self._ranks.outputs.get(path, {}) if path is not None else {}
        whole = list(shape)
        for how, _, count in _shards(self._ranks, declared):
            if how.kind == "shard" and -len(shape) <= how.dim < len(shape):
                whole[how.dim] *= count
        given = self._given
        batch, length = (given.shape[0], given.shape[-1]) if given is not None and _is_tokens(given) else (-1, -1)
        known = batch != length
        data = whole.index(batch) if known and batch in whole else 0
        sequence = whole.index(length) if known and length in whole else None
        return Where(None, _shards(self._ranks, {**parts_of_data(self._ranks.groups, data, sequence), **declared}))


def _is_tokens(leaf: Leaf) -> bool:
    return len(leaf.shape) > 1 and leaf.dtype.startswith("int")


def _shards(ranks: Ranks | None, spread: Spread) -> tuple[tuple[Placement, int, int], ...]:
    if ranks is None:
        return ()
    groups: Mapping[str, tuple[int, ...]] = ranks.groups
    spans = {name: min((b - a for a, b in itertools.pairwise(group)), default=1) for name, group in groups.items()}
    axes = sorted((name for name in spread if name in groups), key=lambda name: (spans[name], name))
    held = ((spread[axis], groups[axis]) for axis in axes if spread[axis].kind in ("shard", "range"))
    return tuple((how, group.index(ranks.rank), len(group)) for how, group in held if len(group) > 1)
