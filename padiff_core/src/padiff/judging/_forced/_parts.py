"""Tell whether a part of a parameter that one side alone has changes anything, where no gradient tells."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench, holding, is_recorded
from padiff.numerics import ACCUMULATED, Array, difference, epsilon
from padiff.parameters import PartAlone

_SCALE = 0.1
"""Standard deviation of what is added: a bias of that size is a usual one."""


class Counting:
    """Tell of parts whether they change anything: by the gradients that come to some of them, or without by runs."""

    def __init__(self, bench: Bench, reached: Collection[PartAlone]) -> None:
        self._bench = bench
        self._known = {part.held: True for part in reached}

    def __call__(self, part: PartAlone) -> bool:
        """Return whether a part changes anything."""
        if part.held not in self._known:
            users = self._bench.alignment.using(part.match.candidate.module.path)
            self._known[part.held] = not self._bench.backward and _changes(part, self._bench, users)
        return self._known[part.held]


def reach_nothing(paths: Collection[str], bench: Bench, root: Pair, *, ours: bool) -> bool:
    """Return whether a model gives the same, to the bit, with other values of some parameters."""
    side, call = (bench.reference, root.reference) if ours else (bench.candidate, root.candidate)
    if not paths or is_recorded(side):
        return False
    draws, free = np.random.default_rng(0), bench.whole(root)
    held = {path: np.asarray(side.value(path)) for path in paths}
    moved = {path: (one + draws.normal(0, _SCALE, one.shape)).astype(one.dtype) for path, one in held.items()}
    first = free.tried(root, ours, backward=False)
    with holding(side, moved):
        second = free.tried(root, ours, backward=False)
    if first is None or second is None:
        return False
    given = ((first.observed.value(leaf), second.observed.value(leaf)) for leaf in call.outputs)
    return all(a is not None and b is not None and np.array_equal(a, b) for a, b in given)


def _changes(part: PartAlone, bench: Bench, pairs: list[Pair]) -> bool:
    """Return whether calls whose own code uses a part make something else once it has other values."""
    side = bench.reference if part.ours else bench.candidate
    if is_recorded(side):
        return False
    path = part.held.parameter.path
    moved = np.array(side.value(path), order="C")
    noise = np.random.default_rng(0).normal(0, _SCALE, part.held.shape).astype(moved.dtype)
    part.held.part.write(moved, part.held.part.read(moved) + noise)
    first = [_made(part, bench, pair) for pair in pairs]
    with holding(side, {path: moved}):
        second = [_made(part, bench, pair) for pair in pairs]
    return any(_apart(one, other) for one, other in zip(first, second, strict=True))


def _made(part: PartAlone, bench: Bench, pair: Pair) -> dict[int, Array]:
    alone = bench.tried(pair, part.ours, backward=False)
    return {} if alone is None else alone.observed.values


def _apart(one: dict[int, Array], other: dict[int, Array]) -> bool:
    both = ((one[token], other[token]) for token in one.keys() & other.keys() if one[token].dtype.kind in "fc")
    return any(difference(a, b).rel_l2 > ACCUMULATED(epsilon(a.dtype)) for a, b in both)
