"""Measure what rounding makes of a value where weights were merged: they are rounded once more than what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from padiff.alignment import Pair
from padiff.forcing import Bench, Replayed, Side
from padiff.numerics import MERGING, epsilon
from padiff.paths import below

Moved = tuple[Replayed, Replayed]
"""What the candidate's call does by itself in float64 with its weights, and with others that merging rounds to, too."""


def moved_by_merging(bench: Bench, pair: Pair) -> Moved | None:
    """Return what other roundings of merged weights make of a pair; None where it has none, or does not run so."""
    paths = [path for path in bench.alignment.merged if below(path, pair.candidate.path)]
    still = bench.tried(pair, False, dtype="float64", backward=False) if paths else None
    if still is None:
        return None
    with rounded_otherwise(bench.candidate, paths):
        moved = bench.tried(pair, False, dtype="float64", backward=False)
    return None if moved is None else (still, moved)


@contextmanager
def rounded_otherwise(side: Side, paths: Iterable[str]) -> Iterator[None]:
    """Let a side hold parameters of which each element is off by as much as merging rounds."""
    random = np.random.default_rng(0)
    before = {path: np.array(side.value(path), order="C") for path in sorted(paths)}
    off = {path: random.uniform(-1, 1, held.shape) * MERGING(epsilon(held.dtype)) for path, held in before.items()}
    side.assign({path: held * (1 + off[path]) for path, held in before.items()})
    try:
        yield
    finally:
        side.assign(before)
